package adsc_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/adsc"
)

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	require.NoError(t, err)
	return a
}

func edsCluster(t *testing.T, name, service string) *anypb.Any {
	return packed(t, &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: service},
	})
}

func listener(t *testing.T, name string, routes ...string) *anypb.Any {
	l := &listenerv3.Listener{Name: name}
	for _, route := range routes {
		hcm := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: route, ConfigSource: &corev3.ConfigSource{},
		}}}
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, hcm)},
		}}})
	}
	return packed(t, l)
}

// TestFollowsParents has the client subscribe to the resources that clusters and listeners refer to, and unsubscribe
// with the last reference.
func TestFollowsParents(t *testing.T) {
	for name, c := range map[string]struct {
		parent, child string
		steps         [][]*anypb.Any // resources of the parent's responses
		want          [][]string     // names of the child's requests after the last steps
	}{
		"clusters": {
			adsc.ClusterType, adsc.EndpointType,
			[][]*anypb.Any{
				{packed(t, &clusterv3.Cluster{Name: "static"})},
				{edsCluster(t, "a", ""), edsCluster(t, "b", "b-service"), packed(t, &clusterv3.Cluster{Name: "static"})},
				{edsCluster(t, "a", "")},
				{},
			},
			[][]string{{"a", "b-service"}, {"a"}, nil},
		},
		"listeners": {
			adsc.ListenerType, adsc.RouteType,
			[][]*anypb.Any{{listener(t, "in", "r1", "r2"), listener(t, "out", "r2")}, {listener(t, "out", "r2", "r3")}},
			[][]string{{"r1", "r2"}, {"r2", "r3"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			children := make(chan []string, 10)
			address := serve(t, func(_ int, s stream) error {
				if _, err := s.Recv(); err != nil {
					return err
				}
				for i, step := range c.steps {
					r := &discoveryv3.DiscoveryResponse{TypeUrl: c.parent, VersionInfo: string(rune('a' + i)), Nonce: "n", Resources: step}
					if err := s.Send(r); err != nil {
						return err
					}
					for requested := i < len(c.steps)-len(c.want); !requested; {
						r, err := s.Recv()
						if err != nil {
							return err
						}
						if requested = r.GetTypeUrl() == c.child; requested {
							children <- r.GetResourceNames()
						}
					}
				}
				<-s.Context().Done()
				return nil
			})
			client, err := adsc.New(quiet(
				address,
				adsc.Subscription{TypeURL: c.child, Follow: true, Handler: accept},
				adsc.Subscription{TypeURL: c.parent, Handler: accept},
			))
			require.NoError(t, err)
			start(t, client)
			for _, want := range c.want {
				assert.Equal(t, want, receive(t, children))
			}
		})
	}
}

// TestSlowHandler_SlowsServer has a server send without waiting for answers.
func TestSlowHandler_SlowsServer(t *testing.T) {
	const responses, size = 200, 1 << 20
	var sent atomic.Int64
	content := string(make([]byte, size))
	address := serve(t, func(_ int, s stream) error {
		r := response(t, typeA, "v", "n", content)
		for range responses {
			if err := s.Send(r); err != nil {
				return err
			}
			sent.Add(1)
		}
		<-s.Context().Done()
		return nil
	})
	result := make(chan int64)
	var handled, lead int64
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: func(context.Context, *adsc.Response) error {
		lead = max(lead, sent.Load()-handled)
		if handled++; handled == responses {
			result <- lead
		}
		return nil
	}})
	cfg.DialOptions = []grpc.DialOption{grpc.WithStaticStreamWindowSize(1 << 16), grpc.WithStaticConnWindowSize(1 << 16)}
	run(t, cfg)
	require.LessOrEqual(t, receive(t, result), int64(4), "responses that the server was ahead: one handled, one read, and a few in transit")
}

// TestFollower_OfResumedType: the client never received the resources that its caller already has, so their references
// are unknown.
func TestFollower_OfResumedType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet("", adsc.Subscription{TypeURL: adsc.ClusterType, Handler: accept, Versions: map[string]string{"c": "1"}},
			adsc.Subscription{TypeURL: adsc.EndpointType, Follow: true, Handler: accept})
		cfg.Mode, cfg.Backoff = adsc.Delta, retries(5)
		var mu sync.Mutex
		var requested []string
		cfg = bubbled(t, cfg, nil, func(_ int, s deltaStream) error {
			for {
				r, err := s.Recv()
				if err != nil {
					return err
				}
				if r.GetResponseNonce() != "" {
					continue
				}
				mu.Lock()
				requested = append(requested, r.GetTypeUrl())
				mu.Unlock()
				out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.GetTypeUrl(), Nonce: "n", SystemVersionInfo: "v"}
				if r.GetTypeUrl() == adsc.ClusterType && r.GetInitialResourceVersions()["c"] != "1" {
					out.Resources = []*discoveryv3.Resource{{Name: "c", Version: "1", Resource: edsCluster(t, "c", "")}}
				}
				if err := s.Send(out); err != nil {
					return err
				}
			}
		}, allowPings)
		c, err := adsc.New(cfg)
		require.NoError(t, err)
		start(t, c)
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		assert.True(t, slices.Contains(requested, adsc.EndpointType), "cluster c has its endpoints from EDS; Synced says %v",
			c.Synced(adsc.EndpointType))
	})
}

// TestRejectedParent_AddsNoReference: the one before it is in force.
func TestRejectedParent_AddsNoReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		reject := func(context.Context, *adsc.Response) error {
			if n++; n > 1 {
				return errRefused
			}
			return nil
		}
		cfg := quiet("", adsc.Subscription{TypeURL: adsc.ListenerType, Handler: reject},
			adsc.Subscription{TypeURL: adsc.RouteType, Follow: true, Handler: accept})
		var routes [][]string
		cfg = bubbled(t, cfg, func(_ int, s stream) error {
			_, _ = s.Recv()
			send := func(nonce, route string) {
				_ = s.Send(&discoveryv3.DiscoveryResponse{
					TypeUrl: adsc.ListenerType, Nonce: nonce, VersionInfo: nonce,
					Resources: []*anypb.Any{listener(t, "l", route)},
				})
			}
			go func() {
				for {
					r, err := s.Recv()
					if err != nil {
						return
					}
					if r.GetTypeUrl() == adsc.RouteType {
						routes = append(routes, r.GetResourceNames())
					}
				}
			}()
			send("1", "good")
			pause(s, time.Minute)
			send("2", "bad")
			pause(s, time.Hour)
			return nil
		}, nil, allowPings)
		run(t, cfg)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, [][]string{{"good"}}, routes, "the listener that refers to good is in force")
	})
}
