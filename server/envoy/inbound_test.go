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
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// nodeAt is a node at an address.
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

// countingReviewer counts how often a client is asked for a review.
type countingReviewer struct{ n int }

func (c *countingReviewer) Review() { c.n++ }

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
		catalog := catalogOfTable(&mesh.Table)
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
			fresh.reset(snap, true)
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
	s := newSteps(Options{}, decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.3}"))...)
	reviews := 0
	s.c.SetReview(func() { reviews++ })
	firstReplica, secondReplica, stranger := &countingReviewer{}, &countingReviewer{}, &countingReviewer{}
	enter := func(address string, reviewer *countingReviewer) model.Profile {
		n := nodeAt(address, node("shop", "REDIRECT", ""))
		p := model.ProfileOf(n)
		s.c.selectProfile(&p, n, reviewer)
		return p
	}
	first := enter("10.0.0.1", firstReplica)
	require.Equal(t, first, enter("10.0.0.2", secondReplica))
	require.NotEqual(t, first, enter("10.0.0.9", stranger))
	s.change(t, serviceAt("web", 80, "{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.4}"))
	require.Equal(t, []int{0, 0, 0, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
	s.change(t, serviceAt("web", 80, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 0, 1, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
	require.Equal(t, first, enter("10.0.0.9", stranger))
	s.change(t, serviceAt("web", 81, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 1, 2, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
	s.change(t, serviceAt("web", 81, "{address: 10.0.0.2}, {address: 10.0.0.9}"))
	require.Equal(t, []int{1, 1, 2, 0}, []int{firstReplica.n, secondReplica.n, stranger.n, reviews})
}

// An ingress listener comes before that of a service at its address, which comes back when it goes.
func TestIngress_PrecedesServiceAtSameAddress(t *testing.T) {
	s := newSteps(Options{}, decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}"))...)
	n := nodeAt("10.0.0.7", node("shop", "NONE", ""))
	seen := see(t, s.c, []*corev3.Node{n})
	direction := func() corev3.TrafficDirection {
		l, _ := dumpOf(t, seen.collections[0])[xds.ListenerURL+"/127.0.0.1_80"].(*listenerv3.Listener)
		require.NotNil(t, l)
		return l.GetTrafficDirection()
	}
	require.Equal(t, corev3.TrafficDirection_OUTBOUND, direction())
	sidecar := `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 80, protocol: HTTP, name: a}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:8080"}]}
`
	s.change(t, sidecar)
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	web := resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "web"}
	require.NotEmpty(t, s.c.currentScopes()[0].findings.noEffect(web))
	s.change(t, "", web)
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	s.change(t, serviceAt("web", 80, "{address: 10.0.0.1}"))
	require.Equal(t, corev3.TrafficDirection_INBOUND, direction())
	s.change(t, "", resource.Key{Kind: resource.Sidecar, Namespace: "shop", Name: "in"})
	require.Equal(t, corev3.TrafficDirection_OUTBOUND, direction())
}

// A missing address is a finding as long as a client without one is connected.
func TestIngressWithoutAddress_NamedForClient(t *testing.T) {
	const sidecar = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 9080, protocol: HTTP, name: a}, defaultEndpoint: "0.0.0.0:8080"}]}
`
	catalog := catalogOf(t, sidecar)
	_, release, err := catalog.Collection(t.Context(), node("shop", "NONE", ""), xds.ClusterURL)
	require.NoError(t, err)
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
	s := newSteps(Options{}, decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}"))...)
	seen := see(t, s.c, []*corev3.Node{nodeAt("10.0.0.1", node("shop", "REDIRECT", ""))})
	limit := func() uint32 {
		cluster := dumpOf(t, seen.collections[0])[xds.ClusterURL+"/inbound|80||"].(*clusterv3.Cluster)
		return cluster.GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue()
	}
	require.NotEqual(t, uint32(5), limit())
	s.change(t, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop}
spec: {host: "*.internal", trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}}
`)
	require.Equal(t, uint32(5), limit())
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
