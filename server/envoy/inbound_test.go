package envoy

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// at is a node at an address.
func at(address string, n *corev3.Node) *corev3.Node {
	namespace := n.GetMetadata().GetFields()[model.MetadataNamespace].GetStringValue()
	n.Id = "sidecar~" + address + "~vm." + namespace + "~" + namespace + ".svc.cluster.local"
	return n
}

func serviceAt(name string, port int, address string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec: {hosts: [%[1]s.internal], ports: [{number: %d, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [%s]}
`, name, port, address)
}

// asked counts how often a client is asked for a review.
type asked struct{ n int }

func (a *asked) Review() { a.n++ }

// Which ports a client serves, and when it is told apart anew, is the same as if all endpoints were looked at each time.
func TestServedPortsFollowTheMesh(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("ENVOY_MODEL_SEEDS"), "20"), 10, 64)
	require.NoError(t, err)
	nodes := []*corev3.Node{
		at("10.0.0.1", node("shop", "REDIRECT", "")), at("10.0.0.1", node("default", "TPROXY", "")), at("10.0.0.1", node("shop", "REDIRECT", "")),
		at("10.0.0.2", node("shop", "REDIRECT", "")), at("10.0.0.2", node("default", "NONE", "")), at("192.0.2.1", node("shop", "REDIRECT", "")),
	}
	both := at("x", node("shop", "REDIRECT", ""))
	both.Metadata.Fields["INSTANCE_IPS"] = structpb.NewStringValue("10.0.0.2,fd00::1")
	nodes = append(nodes, both)
	some, moves := false, 0
	for seed := range seeds {
		h := envoytest.New(seed, resource.ServiceEntry, resource.WorkloadEntry, resource.Sidecar)
		c := New(&h.Table, Options{Log: slog.New(slog.DiscardHandler)})
		c.update(nil, h.Table.Snapshot(), false, true)
		reviews := 0
		c.SetReview(func() { reviews++ })
		by := make([]*asked, len(nodes))
		leave := make([]func(), len(nodes))
		was := make([]string, len(nodes))
		inbound := func(c *Catalog, i int, by *asked) (string, func()) {
			p := model.ProfileOf(nodes[i])
			leave := c.selectProfile(&p, nodes[i], by)
			return p.Inbound, leave
		}
		for i := range nodes {
			by[i] = &asked{}
			was[i], leave[i] = inbound(c, i, by[i])
		}
		var since memstore.Revision
		for range 60 {
			h.Change()
			keys, snap, ok := h.Table.Changes(since)
			before := reviews
			c.update(keys, snap, ok, true)
			since = snap.Revision()
			fresh := New(&h.Table, Options{Log: slog.New(slog.DiscardHandler)})
			fresh.update(nil, snap, false, true)
			for i := range nodes {
				want, _ := inbound(fresh, i, &asked{})
				got, again := inbound(c, i, by[i])
				require.Equal(t, want, got, "seed %d, node %d", seed, i)
				if got != was[i] {
					moves++
					require.Positive(t, by[i].n+reviews-before, "seed %d, node %d: %q, %q", seed, i, was[i], got)
				}
				some = some || got != ""
				by[i].n, was[i] = 0, got
				leave[i]()
				leave[i] = again
			}
		}
		for _, done := range leave {
			done()
		}
	}
	require.True(t, some)
	require.Greater(t, moves, 50)
}

// Replicas share a profile, since they serve the same; who serves something else has another one. A change of endpoints that are no
// client's asks nobody, and one of a client's asks that client only.
func TestReplicasShareAProfile(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.3}")), nil)
	c := catalogOfTable(&table)
	since := table.Snapshot().Revision()
	reviews := 0
	c.SetReview(func() { reviews++ })
	one, two, other := &asked{}, &asked{}, &asked{}
	enter := func(address string, by *asked) model.Profile {
		n := at(address, node("shop", "REDIRECT", ""))
		p := model.ProfileOf(n)
		c.selectProfile(&p, n, by)
		return p
	}
	first := enter("10.0.0.1", one)
	require.Equal(t, first, enter("10.0.0.2", two))
	require.NotEqual(t, first, enter("10.0.0.9", other))
	change := func(text string) {
		table.Apply(decoded(t, text), nil)
		keys, snap, ok := table.Changes(since)
		c.update(keys, snap, ok, true)
		since = snap.Revision()
	}
	change(serviceAt("web", 80, "{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.4}"))
	require.Equal(t, []int{0, 0, 0, 0}, []int{one.n, two.n, other.n, reviews})
	change(serviceAt("web", 80, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 0, 1, 0}, []int{one.n, two.n, other.n, reviews})
	require.Equal(t, first, enter("10.0.0.9", other))
	change(serviceAt("web", 81, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 1, 2, 0}, []int{one.n, two.n, other.n, reviews})
	change(serviceAt("web", 81, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 1, 2, 0}, []int{one.n, two.n, other.n, reviews})
}

// chainsOf returns the filter chains of a listener, each as port, transport and where it leads.
func chainsOf(t *testing.T, l *listenerv3.Listener) (all []string) {
	t.Helper()
	for _, chain := range l.GetFilterChains() {
		to := ""
		for _, f := range chain.GetFilters() {
			var http hcmv3.HttpConnectionManager
			var tcp tcpv3.TcpProxy
			if f.GetTypedConfig().UnmarshalTo(&http) == nil {
				to = "requests to " + http.GetRouteConfig().GetName()
			} else if f.GetTypedConfig().UnmarshalTo(&tcp) == nil {
				to = "connections to " + tcp.GetCluster()
			}
		}
		m := chain.GetFilterChainMatch()
		all = append(all, fmt.Sprintf("%d %s %s", m.GetDestinationPort().GetValue(), cmp.Or(m.GetTransportProtocol(), "any"), to))
	}
	return all
}

// A client without an identity accepts plaintext, unless mutual TLS is a must: then it accepts nothing on the port, nor on ports that no
// service has.
func TestWithoutAnIdentityStrictRefuses(t *testing.T) {
	for _, of := range []struct {
		secured model.Security
		want    []string
	}{
		{model.Security{Mutual: model.Permissive}, []string{
			"15006 any connections to BlackHoleCluster",
			"0 raw_buffer requests to InboundPassthroughCluster", "0 raw_buffer connections to InboundPassthroughCluster",
			"80 raw_buffer requests to inbound|80||", "81 raw_buffer connections to inbound|81||",
		}},
		{model.Security{Mutual: model.Strict}, []string{
			"15006 any connections to BlackHoleCluster", "0 any connections to BlackHoleCluster",
			"80 any connections to BlackHoleCluster", "81 any connections to BlackHoleCluster",
		}},
		{model.Security{Mutual: model.Strict, MutualByPort: map[uint32]model.MutualTLS{80: model.Disabled, 90: model.Disabled}}, []string{
			"15006 any connections to BlackHoleCluster", "0 any connections to BlackHoleCluster",
			"90 raw_buffer requests to InboundPassthroughCluster", "90 raw_buffer connections to InboundPassthroughCluster",
			"80 raw_buffer requests to inbound|80||", "81 any connections to BlackHoleCluster",
		}},
		{model.Security{MutualByPort: map[uint32]model.MutualTLS{80: model.Strict, 15006: model.Disabled}}, []string{
			"15006 any connections to BlackHoleCluster",
			"0 raw_buffer requests to InboundPassthroughCluster", "0 raw_buffer connections to InboundPassthroughCluster",
			"80 any connections to BlackHoleCluster", "81 raw_buffer connections to inbound|81||",
		}},
	} {
		in := &model.Inbound{Captured: true, Ports: []model.WorkloadPort{
			{ServicePort: model.ServicePort{Target: 80, Protocol: "http"}, Address: model.Wildcard},
			{ServicePort: model.ServicePort{Target: 81, Protocol: "tcp"}, Address: model.Wildcard},
		}}
		t1 := translate.View(&model.View{Host: model.InboundPseudoHost, Security: &of.secured, Inbound: in}, nil)
		require.Len(t, t1.Listeners, 1)
		require.Equal(t, of.want, chainsOf(t, messageOf(t, t1.Listeners[0]).(*listenerv3.Listener)), "%v", of.secured)
	}
}

// What security objects ask stands before all other filters of each inbound chain that accepts something.
func TestInboundChainsAreSecured(t *testing.T) {
	secured := &model.Security{
		HTTP: []*hcmv3.HttpFilter{{Name: "first"}}, TCP: []*listenerv3.Filter{{Name: "first"}},
	}
	t1 := translate.View(&model.View{Security: secured, Inbound: &model.Inbound{Captured: true, Ports: []model.WorkloadPort{
		{ServicePort: model.ServicePort{Target: 80, Protocol: "grpc-web"}, Address: model.Wildcard},
		{ServicePort: model.ServicePort{Target: 81, Protocol: "tcp"}, Address: model.Wildcard},
		{ServicePort: model.ServicePort{Target: 82}, Address: model.Wildcard},
		{ServicePort: model.ServicePort{Target: 83, Protocol: "http"}, Address: "10.0.0.1", Bound: true},
	}}}, nil)
	require.Len(t, t1.Listeners, 2)
	n := 0
	for _, e := range t1.Listeners {
		for _, chain := range messageOf(t, e).(*listenerv3.Listener).GetFilterChains() {
			var http hcmv3.HttpConnectionManager
			switch first := chain.GetFilters()[0]; {
			case chain.GetFilterChainMatch().GetDestinationPort().GetValue() == model.InboundCapturePort: // which accepts nothing
			case first.GetTypedConfig().UnmarshalTo(&http) == nil:
				require.Equal(t, "first", http.GetHttpFilters()[0].GetName())
				n++
			default:
				require.Equal(t, "first", first.GetName())
				n++
			}
		}
	}
	require.Equal(t, 7, n)
}

// An ingress listener comes before that of a service at its address, which comes back when it goes.
func TestIngressAndAServiceAtOneAddress(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}")), nil)
	c := catalogOfTable(&table)
	since := table.Snapshot().Revision()
	n := at("10.0.0.7", node("shop", "NONE", ""))
	seen := see(t, c, []*corev3.Node{n})
	direction := func() corev3.TrafficDirection {
		l, _ := dumpOf(t, seen.all[0])[xds.ListenerURL+"/127.0.0.1_80"].(*listenerv3.Listener)
		require.NotNil(t, l)
		return l.GetTrafficDirection()
	}
	change := func(text string, gone ...resource.Key) {
		table.Apply(decoded(t, text), gone)
		keys, snap, ok := table.Changes(since)
		c.update(keys, snap, ok, true)
		since = snap.Revision()
	}
	require.Equal(t, corev3.TrafficDirection_OUTBOUND, direction())
	sidecar := `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 80, protocol: HTTP, name: a}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:8080"}]}
`
	change(sidecar)
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	web := resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "web"}
	require.NotEmpty(t, c.current()[0].findings.withReason(web))
	change("", web)
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	change(serviceAt("web", 80, "{address: 10.0.0.1}"))
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	change("", resource.Key{Kind: resource.Sidecar, Namespace: "shop", Name: "in"})
	require.Equal(t, corev3.TrafficDirection_OUTBOUND, direction())
}

// An ingress listener that needs the address of its workload has that of the client, and there is none as long as it is not known.
func TestIngressAtTheAddressOfTheWorkload(t *testing.T) {
	const sidecar = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 9080, protocol: HTTP, name: a}, defaultEndpoint: "0.0.0.0:8080"}]}
`
	c := catalogOf(t, sidecar)
	all := dump(t, c, at("10.0.0.1", node("shop", "NONE", "")))
	require.Contains(t, all, xds.ListenerURL+"/10.0.0.1_9080")
	to := all[xds.ClusterURL+"/inbound|9080||"].(*clusterv3.Cluster).GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0]
	require.Equal(t, "10.0.0.1", to.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
	all = dump(t, c, at("10.0.0.2", node("shop", "NONE", "")))
	require.Contains(t, all, xds.ListenerURL+"/10.0.0.2_9080")
	without, release, err := c.Collection(t.Context(), node("shop", "NONE", ""), xds.ClusterURL)
	require.NoError(t, err)
	require.Nil(t, without.Get("inbound|9080||"))

	of := decoded(t, sidecar)
	require.NotEmpty(t, c.WithoutEffect(of[0]), "a client says no address")
	release()
	require.Empty(t, c.WithoutEffect(of[0]))
	var table memstore.Table
	table.Apply(of, nil)
	found, err := Findings(&table)
	require.NoError(t, err)
	require.Empty(t, found(of[0]), "where there is no client, each has one")
}

// A rule for the service is one for its workload's connections, from the moment that it is there.
func TestInboundFollowsTheRuleOfItsService(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}")), nil)
	c := catalogOfTable(&table)
	seen := see(t, c, []*corev3.Node{at("10.0.0.1", node("shop", "REDIRECT", ""))})
	limit := func() uint32 {
		cluster := dumpOf(t, seen.all[0])[xds.ClusterURL+"/inbound|80||"].(*clusterv3.Cluster)
		return cluster.GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue()
	}
	require.NotEqual(t, uint32(5), limit())
	since := table.Snapshot().Revision()
	table.Apply(decoded(t, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop}
spec: {host: "*.internal", trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}}
`), nil)
	keys, snap, ok := table.Changes(since)
	c.update(keys, snap, ok, true)
	require.Equal(t, uint32(5), limit())
}

// messageOf decodes an entry.
func messageOf(t *testing.T, e *xds.Entry) proto.Message {
	t.Helper()
	coll := xds.NewGroup(xds.Debounce{}).Collection(xds.TypeOf(xds.ListenerURL))
	coll.Apply(xds.Commit{Put: []*xds.Entry{e}})
	all := dumpOf(t, map[string]*xds.Collection{xds.ListenerURL: coll})
	require.Len(t, all, 1)
	for _, m := range all {
		return m
	}
	return nil
}

// A client says where it is: by the addresses of its instance, or by its id.
func TestAddressesOfANode(t *testing.T) {
	n := at("10.0.0.1", node("shop", "", ""))
	require.Equal(t, []string{"10.0.0.1"}, model.AddressesOf(n))
	many := ""
	for i := range 100 {
		many += fmt.Sprintf(",10.0.1.%d", i)
	}
	n.Metadata.Fields["INSTANCE_IPS"] = structpb.NewStringValue("10.0.0.2,nonsense,fd00::1")
	require.Equal(t, []string{"10.0.0.2", "fd00::1"}, model.AddressesOf(n))
	n.Metadata.Fields["INSTANCE_IPS"] = structpb.NewStringValue(many)
	require.Len(t, slices.Compact(model.AddressesOf(n)), model.MaxAddresses)
	require.Empty(t, model.AddressesOf(node("shop", "", "")))
}
