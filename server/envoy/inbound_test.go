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
func nodeAt(address string, n *corev3.Node) *corev3.Node {
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
type countingReviewer struct{ n int }

func (a *countingReviewer) Review() { a.n++ }

// The served ports of a client, and the reviews that they cause, are the same as with a look at all endpoints after
// each change.
func TestServedPortsFollowTheMesh(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("ENVOY_MODEL_SEEDS"), "20"), 10, 64)
	require.NoError(t, err)
	nodes := []*corev3.Node{
		nodeAt("10.0.0.1", node("shop", "REDIRECT", "")), nodeAt("10.0.0.1",
			node("default", "TPROXY", "")), nodeAt("10.0.0.1", node("shop", "REDIRECT", "")),
		nodeAt("10.0.0.2", node("shop", "REDIRECT", "")), nodeAt("10.0.0.2",
			node("default", "NONE", "")), nodeAt("192.0.2.1", node("shop", "REDIRECT", "")),
	}
	dualStack := nodeAt("x", node("shop", "REDIRECT", ""))
	dualStack.Metadata.Fields["INSTANCE_IPS"] = structpb.NewStringValue("10.0.0.2,fd00::1")
	nodes = append(nodes, dualStack)
	served, moves := false, 0
	for seed := range seeds {
		mesh := envoytest.New(seed, resource.ServiceEntry, resource.WorkloadEntry, resource.Sidecar)
		catalog := New(&mesh.Table, Options{Log: slog.New(slog.DiscardHandler)})
		catalog.update(nil, mesh.Table.Snapshot(), false, true)
		reviews := 0
		catalog.SetReview(func() { reviews++ })
		reviewers := make([]*countingReviewer, len(nodes))
		leave := make([]func(), len(nodes))
		ports := make([]string, len(nodes))
		inbound := func(c *Catalog, i int, reviewer *countingReviewer) (string, func()) {
			p := model.ProfileOf(nodes[i])
			leave := c.selectProfile(&p, nodes[i], reviewer)
			return p.Inbound, leave
		}
		for i := range nodes {
			reviewers[i] = &countingReviewer{}
			ports[i], leave[i] = inbound(catalog, i, reviewers[i])
		}
		var revision memstore.Revision
		for range 60 {
			mesh.Change()
			keys, snap, ok := mesh.Table.Changes(revision)
			before := reviews
			catalog.update(keys, snap, ok, true)
			revision = snap.Revision()
			fresh := New(&mesh.Table, Options{Log: slog.New(slog.DiscardHandler)})
			fresh.update(nil, snap, false, true)
			for i := range nodes {
				want, _ := inbound(fresh, i, &countingReviewer{})
				got, leaveAgain := inbound(catalog, i, reviewers[i])
				require.Equal(t, want, got, "seed %d, node %d", seed, i)
				if got != ports[i] {
					moves++
					require.Positive(t, reviewers[i].n+reviews-before, "seed %d, node %d: %q, %q", seed, i, ports[i], got)
				}
				served = served || got != ""
				reviewers[i].n, ports[i] = 0, got
				leave[i]()
				leave[i] = leaveAgain
			}
		}
		for _, release := range leave {
			release()
		}
	}
	require.True(t, served)
	require.Greater(t, moves, 50)
}

// Replicas share a profile because they serve the same ports; other clients have another one. A change of endpoints
// that belong to no client reviews no client, and a change of a client's endpoint reviews that client only.
func TestReplicasShareAProfile(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.3}")), nil)
	catalog := catalogOfTable(&table)
	revision := table.Snapshot().Revision()
	reviews := 0
	catalog.SetReview(func() { reviews++ })
	firstReplica, secondReplica, stranger := &countingReviewer{}, &countingReviewer{}, &countingReviewer{}
	enter := func(address string, reviewer *countingReviewer) model.Profile {
		n := nodeAt(address, node("shop", "REDIRECT", ""))
		p := model.ProfileOf(n)
		catalog.selectProfile(&p, n, reviewer)
		return p
	}
	first := enter("10.0.0.1", firstReplica)
	require.Equal(t, first, enter("10.0.0.2", secondReplica))
	require.NotEqual(t, first, enter("10.0.0.9", stranger))
	change := func(text string) {
		table.Apply(decoded(t, text), nil)
		keys, snap, ok := table.Changes(revision)
		catalog.update(keys, snap, ok, true)
		revision = snap.Revision()
	}
	change(serviceAt("web", 80, "{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.4}"))
	require.Equal(t, []int{0, 0, 0, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
	change(serviceAt("web", 80, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 0, 1, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
	require.Equal(t, first, enter("10.0.0.9", stranger))
	change(serviceAt("web", 81, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 1, 2, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
	change(serviceAt("web", 81, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 1, 2, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
}

// chainsOf returns the filter chains of a listener, each as port, transport and where it leads.
func chainsOf(t *testing.T, l *listenerv3.Listener) (chains []string) {
	t.Helper()
	for _, chain := range l.GetFilterChains() {
		to := ""
		for _, filter := range chain.GetFilters() {
			var http hcmv3.HttpConnectionManager
			var tcpProxy tcpv3.TcpProxy
			if filter.GetTypedConfig().UnmarshalTo(&http) == nil {
				to = "requests to " + http.GetRouteConfig().GetName()
			} else if filter.GetTypedConfig().UnmarshalTo(&tcpProxy) == nil {
				to = "connections to " + tcpProxy.GetCluster()
			}
		}
		m := chain.GetFilterChainMatch()
		chains = append(chains, fmt.Sprintf("%d %s %s", m.GetDestinationPort().GetValue(), cmp.Or(m.GetTransportProtocol(), "any"), to))
	}
	return chains
}

// A client without an identity accepts plaintext, unless mutual TLS is strict: then it accepts no connections on the
// port, and none on ports without a service.
func TestStrictWithoutIdentity_RefusesConnections(t *testing.T) {
	for _, tt := range []struct {
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
		inbound := &model.Inbound{Captured: true, Ports: []model.WorkloadPort{
			{ServicePort: model.ServicePort{Target: 80, Protocol: "http"}, Address: model.Wildcard},
			{ServicePort: model.ServicePort{Target: 81, Protocol: "tcp"}, Address: model.Wildcard},
		}}
		t1 := translate.View(&model.View{Host: model.InboundPseudoHost, Security: &tt.secured, Inbound: inbound}, nil)
		require.Len(t, t1.Listeners, 1)
		require.Equal(t, tt.want, chainsOf(t, messageOf(t, t1.Listeners[0]).(*listenerv3.Listener)), "%v", tt.secured)
	}
}

// The filters of security objects stand before all other filters of each inbound chain that accepts connections.
func TestSecurityFilters_PrecedeInboundFilters(t *testing.T) {
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
			case chain.GetFilterChainMatch().GetDestinationPort().GetValue() == model.InboundCapturePort: // a port that accepts no connections
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
func TestIngress_PrecedesServiceAtSameAddress(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}")), nil)
	catalog := catalogOfTable(&table)
	revision := table.Snapshot().Revision()
	n := nodeAt("10.0.0.7", node("shop", "NONE", ""))
	seen := see(t, catalog, []*corev3.Node{n})
	direction := func() corev3.TrafficDirection {
		l, _ := dumpOf(t, seen.collections[0])[xds.ListenerURL+"/127.0.0.1_80"].(*listenerv3.Listener)
		require.NotNil(t, l)
		return l.GetTrafficDirection()
	}
	change := func(text string, deleted ...resource.Key) {
		table.Apply(decoded(t, text), deleted)
		keys, snap, ok := table.Changes(revision)
		catalog.update(keys, snap, ok, true)
		revision = snap.Revision()
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
	require.NotEmpty(t, catalog.current()[0].findings.withReason(web))
	change("", web)
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	change(serviceAt("web", 80, "{address: 10.0.0.1}"))
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	change("", resource.Key{Kind: resource.Sidecar, Namespace: "shop", Name: "in"})
	require.Equal(t, corev3.TrafficDirection_OUTBOUND, direction())
}

// An ingress listener that needs the address of its workload has that of the client, and there is none as long as it is not known.
func TestIngress_NeedsWorkloadAddress(t *testing.T) {
	const sidecar = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 9080, protocol: HTTP, name: a}, defaultEndpoint: "0.0.0.0:8080"}]}
`
	catalog := catalogOf(t, sidecar)
	resources := dump(t, catalog, nodeAt("10.0.0.1", node("shop", "NONE", "")))
	require.Contains(t, resources, xds.ListenerURL+"/10.0.0.1_9080")
	to := resources[xds.ClusterURL+"/inbound|9080||"].(*clusterv3.Cluster).GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0]
	require.Equal(t, "10.0.0.1", to.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
	resources = dump(t, catalog, nodeAt("10.0.0.2", node("shop", "NONE", "")))
	require.Contains(t, resources, xds.ListenerURL+"/10.0.0.2_9080")
	withoutAddress, release, err := catalog.Collection(t.Context(), node("shop", "NONE", ""), xds.ClusterURL)
	require.NoError(t, err)
	require.Nil(t, withoutAddress.Get("inbound|9080||"))

	objects := decoded(t, sidecar)
	require.NotEmpty(t, catalog.WithoutEffect(objects[0]), "a client says no address")
	release()
	require.Empty(t, catalog.WithoutEffect(objects[0]))
	var table memstore.Table
	table.Apply(objects, nil)
	findings, err := Findings(&table)
	require.NoError(t, err)
	require.Empty(t, findings(objects[0]), "where there is no client, each has one")
}

// A rule for the service is one for its workload's connections, from the moment that it is there.
func TestInboundFollowsTheRuleOfItsService(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}")), nil)
	catalog := catalogOfTable(&table)
	seen := see(t, catalog, []*corev3.Node{nodeAt("10.0.0.1", node("shop", "REDIRECT", ""))})
	limit := func() uint32 {
		cluster := dumpOf(t, seen.collections[0])[xds.ClusterURL+"/inbound|80||"].(*clusterv3.Cluster)
		return cluster.GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue()
	}
	require.NotEqual(t, uint32(5), limit())
	revision := table.Snapshot().Revision()
	table.Apply(decoded(t, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop}
spec: {host: "*.internal", trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}}
`), nil)
	keys, snap, ok := table.Changes(revision)
	catalog.update(keys, snap, ok, true)
	require.Equal(t, uint32(5), limit())
}

// messageOf decodes an entry.
func messageOf(t *testing.T, e *xds.Entry) proto.Message {
	t.Helper()
	coll := xds.NewGroup(xds.Debounce{}).Collection(xds.TypeOf(xds.ListenerURL))
	coll.Apply(xds.Commit{Put: []*xds.Entry{e}})
	resources := dumpOf(t, map[string]*xds.Collection{xds.ListenerURL: coll})
	require.Len(t, resources, 1)
	for _, m := range resources {
		return m
	}
	return nil
}

// A client says where it is: by the addresses of its instance, or by its id.
func TestAddressesOfANode(t *testing.T) {
	n := nodeAt("10.0.0.1", node("shop", "", ""))
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
