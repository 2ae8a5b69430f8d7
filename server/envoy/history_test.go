package envoy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// nodes are clients of all relevant profiles, in namespaces with different visible services.
var nodes = []*corev3.Node{
	node("default", "NONE", ""), node("shop", "NONE", ""), node("shop", "REDIRECT", ""), node("default", "", "gRPC Go"),
	node("other", "TPROXY", ""),
	gatewayNode("default"), gatewayNode("shop"), node("nobodys", "NONE", ""), gatewayNode("nobodys"),
	nodeWith(node("default", "NONE", ""), "app", "two", "version", "v1"), nodeWith(node("default", "REDIRECT", ""), "version", "v2"),
	nodeWith(gatewayNode("default"), "app", "two"), resolving(node("shop", "REDIRECT", "")),
	nodeAs(node("default", "NONE", ""), model.IdentitySPIRE), nodeAs(node("shop", "REDIRECT", ""), "/etc/identity"),
	nodeAs(gatewayNode("shop"), "/etc/identity"), nodeAs(gatewayNode("shop"), "/etc/other"), versioned(node("default", "NONE", "")),
}

// resolving returns a node that answers DNS queries.
func resolving(n *corev3.Node) *corev3.Node {
	n.GetMetadata().GetFields()[model.MetadataDNS] = structpb.NewStringValue("true")
	return n
}

// versioned returns a node with the metadata of an Envoy version.
func versioned(n *corev3.Node) *corev3.Node {
	n.GetMetadata().GetFields()[model.MetadataIstio] = structpb.NewStringValue("1.27.9")
	return n
}

// nodeAs is a node with an identity.
func nodeAs(n *corev3.Node, identity string) *corev3.Node {
	n.Metadata.Fields[model.MetadataIdentity] = structpb.NewStringValue(identity)
	return n
}

func gatewayNode(namespace string) *corev3.Node {
	n := node(namespace, "", "")
	n.Id = "router~127.0.0.1~gateway." + namespace + "~" + namespace + ".svc.cluster.local"
	return n
}

func node(namespace, interception, agent string) *corev3.Node {
	return &corev3.Node{Id: "n", UserAgentName: agent, Locality: &corev3.Locality{
		Region: "eu",
		Zone:   map[bool]string{true: "a"}[namespace == "shop"],
	}, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		model.MetadataNamespace: structpb.NewStringValue(namespace), model.MetadataInterception: structpb.NewStringValue(interception),
		model.MetadataLabels: structpb.NewStructValue(&structpb.Struct{
			Fields: map[string]*structpb.Value{"app": structpb.NewStringValue("one")},
		}),
	}}}
}

// histories lists the kinds of objects in each history: all kinds; competing Gateways; routes to services; workloads;
// mutual TLS; security of gateways; and objects that change other resources.
var histories = [][]resource.Kind{
	nil,
	{resource.Gateway, resource.VirtualService},
	{resource.ServiceEntry, resource.WorkloadEntry, resource.VirtualService, resource.Sidecar},
	{resource.ServiceEntry, resource.WorkloadEntry, resource.WorkloadGroup, resource.DestinationRule},
	{resource.ServiceEntry, resource.WorkloadEntry, resource.DestinationRule, resource.PeerAuthentication, resource.MeshConfig},
	{resource.Gateway, resource.AuthorizationPolicy, resource.RequestAuthentication, resource.ServiceEntry},
	{resource.ServiceEntry, resource.VirtualService, resource.Gateway, resource.EnvoyFilter, resource.EnvoyFilter, resource.WasmPlugin},
}

// After any history, clients have the same resources as with a fresh catalog of the same mesh, and as with a scope of
// their own. The resources are valid: each reference has a target, and no domain, server name or address is repeated
// where Envoy refuses it. Clients that were disconnected during some changes have the same resources. One seed is one
// history; ENVOY_MODEL_SEEDS sets the number of seeds.
func TestHistory(t *testing.T) {
	t.Parallel()
	few, steps := "8", 60
	if testing.Short() {
		few, steps = "1", 20
	}
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("ENVOY_MODEL_SEEDS"), few), 10, 64)
	require.NoError(t, err)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			mesh := envoytest.New(seed, histories[seed%uint64(len(histories))]...)
			catalog, visited := catalogOfTable(&mesh.Table), catalogOfTable(&mesh.Table)
			var revision memstore.Revision
			stay := see(t, catalog, nodes)
			for step := range steps {
				for range 1 + step%3 { // commits that are seen as one
					mesh.Change()
				}
				keys, snap, ok := mesh.Table.Changes(revision)
				for _, c := range []*Catalog{catalog, visited} {
					c.update(keys, snap, ok && step%17 != 5, true)
				}
				revision = snap.Revision()
				fresh := New(&mesh.Table, Options{Log: slog.New(slog.DiscardHandler)})
				fresh.reset(snap, true)
				for i, n := range nodes {
					got, want := dumpOf(t, stay.collections[i]), dumpOf(t, fresh.newScope(model.ProfileOf(n)).byType())
					require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "seed %d, step %d, node %d", seed, step, i)
					for name := range want {
						require.True(t, proto.Equal(want[name], got[name]), "seed %d, step %d, node %d: %s\n%v\n%v", seed, step, i, name, want[name],
							got[name])
					}
					makesSense(t, got)
					if (step+i)%4 == 0 {
						require.True(t, maps.EqualFunc(want, dump(t, visited, n), func(a, b proto.Message) bool { return proto.Equal(a, b) }),
							"seed %d, step %d, node %d: a client that was disconnected", seed, step, i)
					}
				}
			}
		})
	}
}

// Scopes that are made during changes of the view, and during each other, end up with the final view.
func TestScopes_MadeDuringViewChanges(t *testing.T) {
	mesh := envoytest.New(1)
	catalog := New(&mesh.Table, Options{Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { _ = catalog.Run(ctx) })
	defer background.Wait()
	defer stop()
	mesh.Table.MarkSynced()
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for j := range 5 {
				_, _, err := catalog.Collection(t.Context(), node(fmt.Sprintf("n%d-%d", i%4, j), "", ""), xds.ClusterURL)
				assert.NoError(t, err)
			}
		})
	}
	for range 200 {
		mesh.Change()
	}
	clients.Wait()
	fresh := catalogOfTable(&mesh.Table)
	n := node("n00", "", "")
	require.Eventually(t, func() bool {
		want, got := dump(t, fresh, n), dump(t, catalog, n)
		return maps.EqualFunc(want, got, func(a, b proto.Message) bool { return proto.Equal(a, b) })
	}, 10*time.Second, 10*time.Millisecond)
}

// byType returns the collections that are dumped.
func (c *collections) byType() map[string]*xds.Collection {
	byURL := make(map[string]*xds.Collection)
	for _, url := range dumped {
		byURL[url] = c.collection(url)
	}
	return byURL
}

// dump returns all resources of a client, by type and name.
func dump(t *testing.T, catalog *Catalog, node *corev3.Node) map[string]proto.Message {
	t.Helper()
	byURL := make(map[string]*xds.Collection)
	for _, url := range dumped {
		coll, release, err := catalog.Collection(context.Background(), node, url)
		require.NoError(t, err)
		defer release()
		byURL[url] = coll
	}
	return dumpOf(t, byURL)
}

var dumped = []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL, xds.SecretURL}

func dumpOf(t *testing.T, byURL map[string]*xds.Collection) map[string]proto.Message {
	t.Helper()
	messages := make(map[string]proto.Message)
	for url, coll := range byURL {
		for entry := range coll.All() {
			var body anypb.Any
			require.NoError(t, proto.Unmarshal(entry.Any, &body))
			message, err := body.UnmarshalNew()
			require.NoError(t, err)
			require.Equal(t, entry.Name, xds.NameOf(message))
			require.Equal(t, entry.Child, xds.ChildOf(message))
			if v, ok := message.(interface{ ValidateAll() error }); ok {
				require.NoError(t, v.ValidateAll(), "%v", message)
			}
			messages[url+"/"+entry.Name] = message
		}
	}
	return messages
}

// asksFor returns the names of the secrets and routes that a filter chain needs.
func asksFor(t *testing.T, chain *listenerv3.FilterChain) (names []string) {
	t.Helper()
	ask := func(c *tlsv3.SdsSecretConfig) {
		if c.GetSdsConfig().GetAds() != nil { // others are of SPIRE's agent
			names = append(names, c.GetName())
		}
	}
	if s := chain.GetTransportSocket(); s != nil {
		var tls tlsv3.DownstreamTlsContext
		require.NoError(t, s.GetTypedConfig().UnmarshalTo(&tls))
		for _, c := range tls.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
			ask(c)
		}
		if c := tls.GetCommonTlsContext().GetCombinedValidationContext(); c != nil {
			ask(c.GetValidationContextSdsSecretConfig())
		}
	}
	for _, f := range chain.GetFilters() {
		var http hcmv3.HttpConnectionManager
		if f.GetTypedConfig().UnmarshalTo(&http) == nil {
			if http.GetRouteConfig() == nil {
				names = append(names, http.GetRds().GetRouteConfigName())
			}
		}
	}
	return names
}

// makesSense checks that resources contain no reference to a missing resource, and no duplicate that Envoy refuses.
func makesSense(t *testing.T, resources map[string]proto.Message) {
	t.Helper()
	exists := func(url, name string) bool { return resources[url+"/"+name] != nil }
	addresses := make(map[string]string)
	for _, m := range resources {
		switch m := m.(type) {
		case *clusterv3.Cluster:
			if child := xds.ChildOf(m); child != "" {
				require.True(t, exists(xds.EndpointURL, child), "%s has no endpoints", m.GetName())
			}
			if m.GetType() == clusterv3.Cluster_LOGICAL_DNS {
				require.LessOrEqual(t, len(m.GetLoadAssignment().GetEndpoints()), 1)
			}
		case *endpointv3.ClusterLoadAssignment:
			cluster, _, _ := strings.Cut(m.GetClusterName(), ";")
			require.True(t, exists(xds.ClusterURL, cluster))
			priorities := make(map[uint32]bool)
			for _, l := range m.GetEndpoints() {
				priorities[l.GetPriority()] = true
			}
			for i := range len(priorities) {
				require.True(t, priorities[uint32(i)], "%v", m) //nolint:gosec // it is small
			}
			for _, l := range m.GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					if a := e.GetEndpoint().GetAddress().GetSocketAddress(); a != nil {
						require.True(t, resource.IsAddress(a.GetAddress()), a.GetAddress())
					}
				}
			}
		case *routev3.RouteConfiguration:
			domains, names := make(map[string]bool), make(map[string]bool)
			for _, virtualHost := range m.GetVirtualHosts() {
				require.False(t, names[virtualHost.GetName()], "virtual host %s twice in %s", virtualHost.GetName(), m.GetName())
				names[virtualHost.GetName()] = true
				for _, d := range virtualHost.GetDomains() {
					require.False(t, domains[d], "%s twice in %s", d, m.GetName())
					domains[d] = true
				}
				for _, r := range virtualHost.GetRoutes() {
					if c := r.GetRoute().GetCluster(); r.GetName() == "default" {
						require.True(t, exists(xds.ClusterURL, c), "no cluster %s", c)
					}
				}
			}
		case *listenerv3.Listener:
			if m.GetApiListener() != nil {
				continue
			}
			socketAddress := m.GetAddress().GetSocketAddress()
			if socketAddress.GetProtocol() == corev3.SocketAddress_UDP {
				require.Empty(t, m.GetFilterChains())
				continue
			}
			address := fmt.Sprintf("%s:%d", socketAddress.GetAddress(), socketAddress.GetPortValue())
			require.Empty(t, addresses[address], address)
			addresses[address] = m.GetName()
			require.NotEmpty(t, m.GetFilterChains(), m.GetName())
			matches := make(map[string]bool)
			for _, chain := range m.GetFilterChains() {
				match := chain.GetFilterChainMatch()
				for _, s := range append(match.GetServerNames(), "")[:max(1, len(match.GetServerNames()))] {
					for _, r := range append(match.GetPrefixRanges(), nil)[:max(1, len(match.GetPrefixRanges()))] {
						matchText := fmt.Sprint(s, r, match.GetTransportProtocol(), match.GetDestinationPort(), match.GetApplicationProtocols())
						require.False(t, matches[matchText], "%s twice in %s", matchText, m.GetName())
						matches[matchText] = true
					}
				}
				for _, name := range asksFor(t, chain) {
					require.True(t, exists(xds.SecretURL, name) || exists(xds.RouteURL, name), "%s asks for %s", m.GetName(), name)
				}
			}
		}
	}
}
