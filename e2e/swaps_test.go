package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachetypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/e2e/fixture"
	"tributary/server/envoy"
	"tributary/server/xds"
)

const swaps = 100

// Each swap moves a route to a new cluster and removes the old one in the same commit. A client under load sees none of it.
func TestSwaps(t *testing.T) {
	t.Run("envoy/sotw", func(t *testing.T) { require.Zero(t, swapEnvoy(t, ours, "GRPC")) })
	t.Run("envoy/delta", func(t *testing.T) { require.Zero(t, swapEnvoy(t, ours, "DELTA_GRPC")) })
	t.Run("grpc-go", func(t *testing.T) { require.Zero(t, swapGRPC(t, ours, "RDS")) })
	t.Run("grpc-go/inline", func(t *testing.T) { require.Zero(t, swapGRPC(t, ours, "inline")) })
	t.Run("grpc-go/aggregate", func(t *testing.T) { require.Zero(t, swapGRPC(t, ours, "aggregate")) })
}

// The same through go-control-plane's SnapshotCache, to compare: it sends all types at once.
func TestSwapsThroughSnapshotCache(t *testing.T) {
	if !isNightly {
		t.Skip("set E2E_NIGHTLY=1: it shows another's figures")
	}
	for name, swap := range map[string]func() int64{
		"envoy/sotw":  func() int64 { return swapEnvoy(t, snapshots, "GRPC") },
		"envoy/delta": func() int64 { return swapEnvoy(t, snapshots, "DELTA_GRPC") },
		"grpc-go":     func() int64 { return swapGRPC(t, snapshots, "RDS") },
	} {
		t.Logf("SnapshotCache, %s: %d requests failed in %d swaps", name, swap(), swaps)
	}
}

// plane is a control plane that serves one route to one cluster. It starts serving when it is first given one.
type plane func(t *testing.T) (addr string, set func(swap))

// swap is the state after so many swaps.
type swap struct {
	n         int
	backend   *net.TCPAddr
	listener  *listenerv3.Listener
	aggregate bool // the route leads to a cluster that consists of others
}

// ours is the engine, each swap a transaction.
func ours(t *testing.T) (string, func(swap)) {
	group := xds.NewGroup(xds.Debounce{})
	colls := catalog{}
	for _, url := range []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL} {
		colls[url] = group.Collection(envoy.TypeOf(url))
	}
	server := xds.NewServer(colls, xds.Options{Pacing: xds.Pacing{Least: -1}}) // time is not the subject
	t.Cleanup(server.Close)
	addr := serveGRPC(t, server.Register, server.ServerOptions()...)
	return addr, func(s swap) {
		commits := map[*xds.Collection]*xds.Commit{}
		for url, parts := range s.parts(t) {
			commits[colls[url]] = &xds.Commit{Reset: true}
			for _, m := range parts {
				e, err := xds.NewEntry(m)
				require.NoError(t, err)
				commits[colls[url]].Put = append(commits[colls[url]].Put, e)
			}
		}
		group.Apply(commits)
		for _, c := range colls {
			c.MarkSynced()
		}
	}
}

type catalog map[string]*xds.Collection

func (c catalog) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	return c[typeURL], nil, nil
}

// snapshots is go-control-plane's cache and server.
func snapshots(t *testing.T) (string, func(swap)) {
	cache := cachev3.NewSnapshotCache(true, cachev3.IDHash{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	server := serverv3.NewServer(ctx, cache, nil)
	addr := serveGRPC(t, func(r grpc.ServiceRegistrar) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, server) })
	return addr, func(s swap) {
		snapshot, err := cachev3.NewSnapshot(fmt.Sprint(s.n), s.parts(t))
		require.NoError(t, err)
		require.NoError(t, cache.SetSnapshot(ctx, "n1", snapshot))
	}
}

func serveGRPC(t *testing.T, register func(grpc.ServiceRegistrar), opts ...grpc.ServerOption) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(opts...)
	register(s)
	go func() { _ = s.Serve(lis) }()
	t.Cleanup(s.Stop)
	return lis.Addr().String()
}

// parts are the resources, by type.
func (s swap) parts(t *testing.T) map[resourcev3.Type][]cachetypes.Resource {
	name := fmt.Sprintf("c%d", s.n)
	cluster := &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
	clusters := []cachetypes.Resource{cluster}
	if s.aggregate {
		cluster.Name = "within-" + name
		aggregate, err := anypb.New(&aggregatev3.ClusterConfig{Clusters: []string{cluster.Name}})
		require.NoError(t, err)
		clusters = append(clusters, &clusterv3.Cluster{
			Name: name,
			ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
				Name:        "envoy.clusters.aggregate",
				TypedConfig: aggregate,
			}},
		})
	}
	return map[resourcev3.Type][]cachetypes.Resource{
		xds.ListenerURL: {s.listener},
		xds.RouteURL:    {s.routes()},
		xds.ClusterURL:  clusters,
		xds.EndpointURL: {&endpointv3.ClusterLoadAssignment{
			ClusterName: cluster.Name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				Locality: &corev3.Locality{Region: "r"}, LoadBalancingWeight: wrapperspb.UInt32(1),
				LbEndpoints: []*endpointv3.LbEndpoint{
					{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(s.backend)}}},
				},
			}},
		}},
	}
}

func (s swap) routes() *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: "route", VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		ResponseHeadersToAdd: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-swap", Value: fmt.Sprint(s.n)}}},
		Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: fmt.Sprintf("c%d",
				s.n)}}},
		}},
	}}}
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func address(a *net.TCPAddr) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: a.IP.String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port)}, //nolint:gosec // a port
	}}}
}

// manager is an HTTP connection manager with inline routes, or with routes by RDS if these are nil.
func manager(t *testing.T, routes *routev3.RouteConfiguration) *anypb.Any {
	router, err := anypb.New(&routerv3.Router{})
	require.NoError(t, err)
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:     "in",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "route", ConfigSource: ads()}},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
	}
	if routes != nil {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	}
	hcm, err := anypb.New(m)
	require.NoError(t, err)
	return hcm
}

// apiListener is the listener that grpc-go asks for.
func apiListener(t *testing.T, routes *routev3.RouteConfiguration) *listenerv3.Listener {
	return &listenerv3.Listener{Name: "svc", ApiListener: &listenerv3.ApiListener{ApiListener: manager(t, routes)}}
}

// load repeats a request, several at a time, until it is stopped. A request returns the name of the server.
type load struct {
	failed, answered atomic.Int64
	last             atomic.Value
	stop             chan struct{}
	wg               sync.WaitGroup
}

func startLoad(t *testing.T, request func() (string, error)) *load {
	l := &load{stop: make(chan struct{})}
	for range 4 {
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				text, err := request()
				if err != nil {
					if l.failed.Add(1) <= 3 {
						t.Logf("request failed: %v", err)
					}
					continue
				}
				l.answered.Add(1)
				l.last.Store(text)
			}
		})
	}
	return l
}

func (l *load) end() int64 {
	close(l.stop)
	l.wg.Wait()
	return l.failed.Load()
}

// awaitAnswer waits until a server with the name answers.
func (l *load) awaitAnswer(t *testing.T, text string) {
	require.Eventually(t, func() bool { return l.last.Load() == text }, 20*time.Second, time.Millisecond, "answers from %s", text)
}

// swapEnvoy returns how many requests through a real Envoy fail while its route is swapped.
func swapEnvoy(t *testing.T, control plane, api string) (failed int64) {
	addr, set := control(t)
	port := fixture.FreePort(t)
	listener := &listenerv3.Listener{
		Name: "in", Address: address(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager(t, nil)},
		}}}},
	}
	backend := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: backend(t, "one")}
	set(swap{backend: backend, listener: listener})
	host, ads, _ := net.SplitHostPort(addr)
	fixture.StartEnvoyWith(t, strings.NewReplacer("API", api, "HOST", host, "PORT", ads).Replace(swapBootstrap))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	request := func() (string, error) {
		res, err := client.Get("http://" + fixture.Loopback(port)) //nolint:noctx // as short as the test
		if err != nil {
			return "", err
		}
		defer func() { _ = res.Body.Close() }()
		if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s %s: %v", res.Status, body, err) //nolint:errorlint // err may be nil
		}
		return res.Header.Get("x-swap"), nil
	}
	require.Eventually(t, func() bool { _, err := request(); return err == nil }, 10*time.Second, 10*time.Millisecond)
	l := startLoad(t, request)
	for n := 1; n <= swaps; n++ {
		set(swap{n: n, backend: backend, listener: listener})
		l.awaitAnswer(t, fmt.Sprint(n))
	}
	failed = l.end()
	t.Logf("%s: %d requests answered, %d failed", api, l.answered.Load(), failed)
	return failed
}

const swapBootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
node: {id: n1, cluster: c}
dynamic_resources:
  ads_config: {api_type: API, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: ads}}]}
  cds_config: {ads: {}, resource_api_version: V3}
  lds_config: {ads: {}, resource_api_version: V3}
static_resources:
  clusters:
  - name: ads
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: ads
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: HOST, port_value: PORT}}}}]}]
`

// swapGRPC is swapEnvoy for grpc-go's xDS client, with a backend of its own for each cluster. By its setup, the route
// may be part of the listener, or lead to aggregate clusters.
func swapGRPC(t *testing.T, control plane, setup string) (failed int64) {
	addr, set := control(t)
	var backends []*net.TCPAddr // one for each swap, so that an answer tells how far the client is
	for range swaps + 1 {
		addr := serveGRPC(t, func(r grpc.ServiceRegistrar) { healthpb.RegisterHealthServer(r, health.NewServer()) })
		a, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		backends = append(backends, a)
	}
	to := func(n int) {
		s := swap{n: n, backend: backends[n], aggregate: setup == "aggregate"}
		var routes *routev3.RouteConfiguration
		if setup == "inline" {
			routes = s.routes()
		}
		s.listener = apiListener(t, routes)
		set(s)
	}
	to(0)
	conn := xdsConnection(t, addr, "xds:///svc")
	request := func() (string, error) { return checkHealth(conn) }
	require.Eventually(t, func() bool { _, err := request(); return err == nil }, 10*time.Second, 10*time.Millisecond)
	l := startLoad(t, request)
	for n := 1; n <= swaps; n++ {
		to(n)
		l.awaitAnswer(t, backends[n].String())
	}
	failed = l.end()
	t.Logf("grpc-go, %s: %d requests answered, %d failed", setup, l.answered.Load(), failed)
	return failed
}
