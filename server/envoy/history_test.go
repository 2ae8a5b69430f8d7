package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// nodes are clients of all profiles that matter, in namespaces that differ in what they see.
var nodes = []*corev3.Node{
	node("default", "NONE", ""), node("shop", "NONE", ""), node("shop", "REDIRECT", ""), node("default", "", "gRPC Go"), node("other", "TPROXY", ""),
}

func node(namespace, interception, agent string) *corev3.Node {
	return &corev3.Node{Id: "n", UserAgentName: agent, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		metadataNamespace: structpb.NewStringValue(namespace), metadataInterception: structpb.NewStringValue(interception),
		metadataLabels: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"app": structpb.NewStringValue("one")}}),
	}}}
}

// Whatever the history, clients are told what they would be told of the same mesh if it had never been another, and it is something that
// can be told: names that are known lead somewhere, and no domain, server name or address stands twice where it must not.
func TestHistory(t *testing.T) {
	for seed := range uint64(10) {
		h := &history{rand: rand.New(rand.NewPCG(seed, 0)), objects: make(map[resource.Key]*resource.Resource)} //nolint:gosec // a test's
		c := New(&h.table, Options{Log: slog.New(slog.DiscardHandler)})
		c.update(nil, h.table.Snapshot(), false, true)
		var since memstore.Revision
		for _, n := range nodes[:3] {
			_, _, err := c.Collection(t.Context(), n, xds.ClusterURL)
			require.NoError(t, err)
		}
		for step := range 60 {
			h.change()
			keys, snap, ok := h.table.Changes(since)
			c.update(keys, snap, ok && step%17 != 5, true)
			since = snap.Revision()
			if step%20 != 19 {
				continue
			}
			fresh := New(&h.table, Options{Log: slog.New(slog.DiscardHandler)})
			fresh.update(nil, snap, false, true)
			for i, n := range nodes {
				got, want := dump(t, c, n), dump(t, fresh, n)
				require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "seed %d, step %d, node %d", seed, step, i)
				for name := range want {
					require.True(t, proto.Equal(want[name], got[name]), "seed %d, step %d, node %d: %s\n%v\n%v", seed, step, i, name, want[name], got[name])
				}
				makesSense(t, got)
			}
		}
	}
}

// Scopes that are made while the view changes, and while others are made, come to what the view is in the end.
func TestScopesAreMadeWhileTheViewChanges(t *testing.T) {
	h := &history{rand: rand.New(rand.NewPCG(1, 0)), objects: make(map[resource.Key]*resource.Resource)} //nolint:gosec // a test's
	c := New(&h.table, Options{Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = c.Run(ctx) })
	defer all.Wait()
	defer stop()
	h.table.MarkSynced()
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for j := range 5 {
				_, _, err := c.Collection(t.Context(), node(fmt.Sprint("n", i%4, j), "", ""), xds.ClusterURL)
				assert.NoError(t, err)
			}
		})
	}
	for range 200 {
		h.change()
	}
	clients.Wait()
	fresh := New(&h.table, Options{Log: slog.New(slog.DiscardHandler)})
	fresh.update(nil, h.table.Snapshot(), false, true)
	n := node("n00", "", "")
	require.Eventually(t, func() bool {
		want, got := dump(t, fresh, n), dump(t, c, n)
		return maps.EqualFunc(want, got, func(a, b proto.Message) bool { return proto.Equal(a, b) })
	}, 10*time.Second, 10*time.Millisecond)
}

// dump returns all that a client would be told, by type and name.
func dump(t *testing.T, c *Catalog, n *corev3.Node) map[string]proto.Message {
	t.Helper()
	all := make(map[string]proto.Message)
	for _, url := range []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL} {
		coll, done, err := c.Collection(context.Background(), n, url)
		require.NoError(t, err)
		for e := range coll.All() {
			var body anypb.Any
			require.NoError(t, proto.Unmarshal(e.Any, &body))
			m, err := body.UnmarshalNew()
			require.NoError(t, err)
			require.Equal(t, e.Name, xds.NameOf(m))
			require.Equal(t, e.Child, xds.ChildOf(m))
			if v, ok := m.(interface{ ValidateAll() error }); ok {
				require.NoError(t, v.ValidateAll(), "%v", m)
			}
			all[url+"/"+e.Name] = m
		}
		done()
	}
	return all
}

// makesSense checks what Envoy refuses, or what would lead nowhere.
func makesSense(t *testing.T, all map[string]proto.Message) {
	t.Helper()
	has := func(url, name string) bool { return all[url+"/"+name] != nil }
	addresses := make(map[string]string)
	for _, m := range all {
		switch m := m.(type) {
		case *clusterv3.Cluster:
			if child := xds.ChildOf(m); child != "" {
				require.True(t, has(xds.EndpointURL, child), "%s has no endpoints", m.GetName())
			}
			if m.GetType() == clusterv3.Cluster_LOGICAL_DNS {
				require.LessOrEqual(t, len(m.GetLoadAssignment().GetEndpoints()), 1)
			}
		case *endpointv3.ClusterLoadAssignment:
			require.True(t, has(xds.ClusterURL, m.GetClusterName()))
			for _, l := range m.GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					if a := e.GetEndpoint().GetAddress().GetSocketAddress(); a != nil {
						require.True(t, isAddress(a.GetAddress()), a.GetAddress())
					}
				}
			}
		case *routev3.RouteConfiguration:
			domains := make(map[string]bool)
			for _, v := range m.GetVirtualHosts() {
				for _, d := range v.GetDomains() {
					require.False(t, domains[d], "%s twice in %s", d, m.GetName())
					domains[d] = true
				}
				for _, r := range v.GetRoutes() {
					if c := r.GetRoute().GetCluster(); r.GetName() == "default" {
						require.True(t, has(xds.ClusterURL, c), "no cluster %s", c)
					}
				}
			}
		case *listenerv3.Listener:
			if m.GetApiListener() != nil {
				continue
			}
			a := m.GetAddress().GetSocketAddress()
			at := fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue())
			require.Empty(t, addresses[at], at)
			addresses[at] = m.GetName()
			servers := make(map[string]bool)
			for _, chain := range m.GetFilterChains() {
				for _, s := range chain.GetFilterChainMatch().GetServerNames() {
					require.False(t, servers[s], "%s twice in %s", s, m.GetName())
					servers[s] = true
				}
			}
		}
	}
}

// history changes a mesh at random.
type history struct {
	rand    *rand.Rand
	table   memstore.Table
	objects map[resource.Key]*resource.Resource
}

func (h *history) change() {
	var puts []*resource.Resource
	var deletes []resource.Key
	for range 1 + h.rand.IntN(3) {
		switch key := h.key(); {
		case h.objects[key] != nil && h.rand.IntN(3) == 0:
			delete(h.objects, key)
			deletes = append(deletes, key)
			puts = slices.DeleteFunc(puts, func(r *resource.Resource) bool { return r.Key() == key })
		default:
			r := h.object(key)
			h.objects[key] = r
			puts = append(puts, r)
			deletes = slices.DeleteFunc(deletes, func(k resource.Key) bool { return k == key })
		}
	}
	h.table.Apply(puts, deletes)
}

func (h *history) pick(of ...string) string { return of[h.rand.IntN(len(of))] }

func (h *history) key() resource.Key {
	key := resource.Key{Kind: resource.ServiceEntry, Namespace: h.pick("default", "shop", "other"), Name: h.pick("a", "b", "c", "d")}
	switch h.rand.IntN(8) {
	case 0, 1:
		key.Kind = resource.WorkloadEntry
	case 2:
		key.Kind = resource.DestinationRule
	case 3, 4:
		key.Kind = resource.VirtualService
	}
	return key
}

func (h *history) object(key resource.Key) *resource.Resource {
	var spec proto.Message
	switch key.Kind {
	case resource.WorkloadEntry:
		spec = h.workload()
	case resource.DestinationRule:
		spec = h.policy()
	case resource.VirtualService:
		spec = h.routes()
	default:
		spec = h.service()
	}
	r, err := resource.New(resource.Meta{Key: key, Labels: h.labels()}, spec)
	if err != nil {
		panic(err)
	}
	return r
}

func (h *history) labels() map[string]string {
	if h.rand.IntN(2) == 0 {
		return nil
	}
	return map[string]string{"app": h.pick("one", "two"), "version": h.pick("v1", "v2", "latest")}
}

func (h *history) workload() *networking.WorkloadEntry {
	w := &networking.WorkloadEntry{
		Address: h.pick("10.0.0.1", "10.0.0.2", "fd00::1", "name.internal", "unix:///run/one.sock"), Labels: h.labels(), Weight: h.rand.Uint32N(3),
		Locality: h.pick("", "eu", "eu/a", "eu/a/1", "us/b"),
	}
	if h.rand.IntN(2) == 0 {
		w.Ports = map[string]uint32{"http": 8000 + h.rand.Uint32N(3)}
	}
	return w
}

func (h *history) service() *networking.ServiceEntry {
	s := &networking.ServiceEntry{
		Hosts:      []string{h.pick("one.internal", "Two.internal", "three.internal", "*.wild.internal", "*")},
		Resolution: networking.ServiceEntry_Resolution(h.rand.IntN(4)), //nolint:gosec // there are four
		Location:   networking.ServiceEntry_Location(h.rand.IntN(2)),   //nolint:gosec // there are two
	}
	if h.rand.IntN(3) == 0 {
		s.Hosts = append(s.Hosts, h.pick("four.internal", "five.internal"))
	}
	if h.rand.IntN(2) == 0 {
		s.Addresses = []string{h.pick("240.0.0.1", "240.0.0.2", "240.1.0.0/16", "fd00::9")}
	}
	if h.rand.IntN(3) == 0 {
		s.ExportTo = []string{h.pick(".", "*", "shop", "~")}
	}
	for i := range 1 + h.rand.IntN(3) {
		s.Ports = append(s.Ports, &networking.ServicePort{
			Number: []uint32{80, 443, 8080}[i], Name: h.pick("http", "x") + fmt.Sprint(i), Protocol: h.pick("HTTP", "GRPC", "TCP", "TLS", "HTTPS", "UDP"),
			TargetPort: h.rand.Uint32N(2) * 9000,
		})
	}
	if h.rand.IntN(2) == 0 {
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": h.pick("one", "two")}}
		return s
	}
	for range h.rand.IntN(3) {
		s.Endpoints = append(s.Endpoints, h.workload())
	}
	return s
}

func (h *history) policy() *networking.DestinationRule {
	d := &networking.DestinationRule{Host: h.pick("one.internal", "two.internal", "*.internal", "*", "*.wild.internal"), TrafficPolicy: h.traffic()}
	for _, name := range []string{"v1", "v2"} {
		if h.rand.IntN(2) == 0 {
			d.Subsets = append(d.Subsets, &networking.Subset{Name: name, Labels: map[string]string{"version": name}, TrafficPolicy: h.traffic()})
		}
	}
	if h.rand.IntN(3) == 0 {
		d.ExportTo = []string{h.pick(".", "*", "shop")}
	}
	return d
}

func (h *history) traffic() *networking.TrafficPolicy {
	p := &networking.TrafficPolicy{}
	switch h.rand.IntN(6) {
	case 0:
		return nil
	case 1:
		p.LoadBalancer = &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{
			Simple: networking.LoadBalancerSettings_SimpleLB(h.rand.IntN(6)), //nolint:gosec // there are six
		}}
	case 2:
		p.LoadBalancer = &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{
			ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{
				HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName{HttpHeaderName: h.pick("x-one", "x-two")},
			},
		}}
	case 3:
		p.ConnectionPool = &networking.ConnectionPoolSettings{
			Tcp:  &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: h.rand.Int32N(3)},
			Http: &networking.ConnectionPoolSettings_HTTPSettings{UseClientProtocol: h.rand.IntN(2) == 0, MaxRequestsPerConnection: h.rand.Int32N(2)},
		}
	case 4:
		p.OutlierDetection = &networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(h.rand.Uint32N(3)), MinHealthPercent: h.rand.Int32N(2) * 50}
	}
	if h.rand.IntN(3) == 0 {
		p.PortLevelSettings = []*networking.TrafficPolicy_PortTrafficPolicy{{Port: &networking.PortSelector{Number: 80}, OutlierDetection: &networking.OutlierDetection{}}}
	}
	return p
}

func (h *history) routes() *networking.VirtualService {
	v := &networking.VirtualService{Hosts: []string{h.pick("one.internal", "two.internal", "none.internal", "*.internal", "*")}}
	if h.rand.IntN(4) == 0 {
		v.Gateways = []string{h.pick("mesh", "gateway")}
	}
	if h.rand.IntN(4) == 0 {
		v.ExportTo = []string{h.pick(".", "*", "shop")}
	}
	for range h.rand.IntN(3) {
		r := &networking.HTTPRoute{Name: h.pick("", "a")}
		for range h.rand.IntN(3) {
			r.Match = append(r.Match, h.match())
		}
		switch h.rand.IntN(5) {
		case 0:
			r.Redirect = &networking.HTTPRedirect{Uri: "/other"}
		case 1:
			r.DirectResponse = &networking.HTTPDirectResponse{Status: 418}
		default:
			for i := range 1 + h.rand.IntN(2) {
				to := &networking.HTTPRouteDestination{Destination: &networking.Destination{
					Host: h.pick("one.internal", "two.internal", "three.internal", "short", "nowhere.internal"), Subset: h.pick("", "v1", "v2"),
				}, Weight: int32(i + 1)}
				if h.rand.IntN(2) == 0 {
					to.Destination.Port = &networking.PortSelector{Number: 80}
				}
				r.Route = append(r.Route, to)
			}
		}
		v.Http = append(v.Http, r)
	}
	return v
}

func (h *history) match() *networking.HTTPMatchRequest {
	m := &networking.HTTPMatchRequest{}
	text := &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: h.pick("/", "/a")}}
	switch h.rand.IntN(6) {
	case 0:
		m.Uri = text
	case 1:
		m.Headers = map[string]*networking.StringMatch{"x-a": text, "x-b": {}}
	case 2:
		m.WithoutHeaders = map[string]*networking.StringMatch{"x-a": text, "x-b": {}}
	case 3:
		m.SourceLabels = map[string]string{"app": h.pick("one", "two")}
	case 4:
		m.SourceNamespace = h.pick("shop", "other")
	case 5:
		m.Port = []uint32{80, 8080}[h.rand.IntN(2)]
	}
	return m
}
