package envoy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// watcher is an Envoy that accepts all resources, and records the inbound listeners since its last rest.
type watcher struct {
	node  *corev3.Node
	close func()

	mu        sync.Mutex
	resources map[string][]byte
	seen      map[string][][]byte // inbound listeners, by name; nil for one that was removed
	rest      map[string][]byte   // the inbound listeners at that time
}

func watch(t *testing.T, conn *grpc.ClientConn, n *corev3.Node) *watcher {
	t.Helper()
	w := &watcher{node: n, resources: make(map[string][]byte), seen: make(map[string][][]byte)}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	for _, url := range dumped {
		require.NoError(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: url, ResourceNamesSubscribe: []string{"*"}}))
		n = nil
	}
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			w.take(r)
			if stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}) != nil {
				return
			}
		}
	})
	w.close = func() { cancel(); receiver.Wait() }
	return w
}

func (w *watcher) take(r *discoveryv3.DeltaDiscoveryResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	note := func(name string, body []byte) {
		if w.resources[r.GetTypeUrl()+"/"+name] = body; body == nil {
			delete(w.resources, r.GetTypeUrl()+"/"+name)
		}
		if r.GetTypeUrl() == xds.ListenerURL {
			w.seen[name] = append(w.seen[name], body)
		}
	}
	for _, res := range r.GetResources() {
		note(res.GetName(), res.GetResource().GetValue())
	}
	for _, name := range r.GetRemovedResources() {
		note(name, nil)
	}
}

// matches reports whether the client has exactly the wanted resources.
func (w *watcher) matches(want map[string][]byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.EqualFunc(want, w.resources, bytes.Equal)
}

// bodiesFor returns a catalog's resources for a client.
func bodiesFor(t *testing.T, catalog *Catalog, node *corev3.Node) map[string][]byte {
	t.Helper()
	bodies := make(map[string][]byte)
	for _, url := range dumped {
		coll, release, err := catalog.Collection(context.Background(), node, url)
		require.NoError(t, err)
		defer release()
		for e := range coll.All() {
			var body anypb.Any
			require.NoError(t, proto.Unmarshal(e.Any, &body))
			bodies[url+"/"+e.Name] = body.GetValue()
		}
	}
	return bodies
}

var policyName = regexp.MustCompile(`ns\[[a-z-]*\]-policy\[[a-z-]*\]`)

// inboundChains returns the policies of each filter chain of an inbound listener; nil if it is none.
func inboundChains(t *testing.T, body []byte) map[string]map[string]bool {
	t.Helper()
	var listener listenerv3.Listener
	require.NoError(t, proto.Unmarshal(body, &listener))
	if listener.GetTrafficDirection() != corev3.TrafficDirection_INBOUND {
		return nil
	}
	policiesByChain := make(map[string]map[string]bool)
	for _, chain := range listener.GetFilterChains() {
		names := make(map[string]bool)
		for _, f := range chain.GetFilters() {
			for _, name := range policyName.FindAll(f.GetTypedConfig().GetValue(), -1) {
				names[string(name)] = true
			}
		}
		policiesByChain[chain.GetName()+" "+chain.GetFilterChainMatch().String()] = names
	}
	return policiesByChain
}

// settled checks that each chain and policy that existed before and after a change also existed in between, and starts
// a new record.
func (w *watcher) settled(t *testing.T, label string) (policies int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, versions := range w.seen {
		key := xds.ListenerURL + "/" + name
		before, after := inboundChains(t, w.rest[key]), inboundChains(t, w.resources[key])
		if w.rest[key] == nil || w.resources[key] == nil || before == nil || after == nil {
			continue
		}
		for _, version := range versions {
			require.NotNil(t, version, "%s: %s was away", label, name)
			between := inboundChains(t, version)
			for chain, policiesBefore := range before {
				if after[chain] == nil {
					continue
				}
				require.NotNil(t, between[chain], "%s: %s, %s was away", label, name, chain)
				for policy := range policiesBefore {
					if after[chain][policy] {
						policies++
						require.True(t, between[chain][policy], "%s: %s, %s was without %s", label, name, chain, policy)
					}
				}
			}
		}
	}
	clear(w.seen)
	w.rest = maps.Clone(w.resources)
	return policies
}

// randomNode is a client at one of a few places.
func randomNode(random *rand.Rand) *corev3.Node {
	pick := func(options ...string) string { return options[random.IntN(len(options))] }
	n := node(pick("shop", "shop", "default", "nobodys"), pick("REDIRECT", "REDIRECT", "TPROXY", "NONE"), "")
	if random.IntN(3) == 0 {
		n = nodeAs(n, pick(model.IdentitySPIRE, "/etc/identity"))
	}
	if random.IntN(3) == 0 {
		n = nodeWith(n, "app", "two")
	}
	if random.IntN(4) == 0 {
		n = versioned(n)
	}
	if random.IntN(3) == 0 {
		return withAddresses(pick("10.0.0.1,fd00::1", "fd00::1,10.0.0.2", "10.0.0.2"), n)
	}
	return nodeAt(pick("10.0.0.1", "10.0.0.1", "10.0.0.2", "192.0.2.1"), n)
}

// Clients that connect, disconnect and stay end up with the resources of a fresh catalog. Inbound chains and policies
// that exist before and after a change also exist in between. ENVOY_MODEL_SEEDS sets the number of seeds.
func TestInbound_ClientsComeAndGo(t *testing.T) {
	t.Parallel()
	few, steps := "2", 60
	if testing.Short() {
		few, steps = "1", 25
	}
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("ENVOY_MODEL_SEEDS"), few), 10, 64)
	require.NoError(t, err)
	retainedPolicies := 0
	for seed := range seeds {
		kinds := []resource.Kind{
			resource.ServiceEntry, resource.ServiceEntry, resource.WorkloadEntry, resource.PeerAuthentication, resource.AuthorizationPolicy,
			resource.AuthorizationPolicy, resource.Sidecar, resource.EnvoyFilter, resource.DestinationRule,
		}
		if seed%2 == 1 {
			kinds = []resource.Kind{resource.ServiceEntry, resource.Sidecar, resource.Sidecar, resource.AuthorizationPolicy}
		}
		mesh := envoytest.New(seed, kinds...)
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		served := serve(t)
		conn, err := grpc.NewClient(served.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		var watchers []*watcher
		var revision memstore.Revision
		for step := range steps {
			for len(watchers) < 8 {
				watchers = append(watchers, watch(t, conn, randomNode(random)))
			}
			for range 1 + step%2 {
				mesh.Change()
			}
			snap := served.follow(&mesh.Table, revision)
			revision = snap.Revision()
			fresh := New(&mesh.Table, Options{Log: slog.New(slog.DiscardHandler)})
			fresh.reset(snap, true)
			for i, w := range watchers {
				want := bodiesFor(t, fresh, w.node)
				label := fmt.Sprintf("seed %d, step %d, client %d: %v", seed, step, i, w.node)
				served.eventually(func() bool { return w.matches(want) }, label)
				retainedPolicies += w.settled(t, label)
			}
			if random.IntN(2) == 0 {
				i := random.IntN(len(watchers))
				watchers[i].close()
				watchers = append(watchers[:i], watchers[i+1:]...)
			}
		}
		_ = conn.Close() // ends all clients
	}
	require.Positive(t, retainedPolicies)
}
