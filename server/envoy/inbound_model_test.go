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

// watcher is an Envoy that takes all that it is sent, and keeps what its inbound listeners were since it was at rest.
type watcher struct {
	node  *corev3.Node
	close func()

	mu   sync.Mutex
	has  map[string][]byte
	seen map[string][][]byte // inbound listeners, by name; nil for one that was removed
	rest map[string][]byte   // what it had then
}

func watch(t *testing.T, conn *grpc.ClientConn, n *corev3.Node) *watcher {
	t.Helper()
	w := &watcher{node: n, has: make(map[string][]byte), seen: make(map[string][][]byte)}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	for _, url := range dumped {
		require.NoError(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: url, ResourceNamesSubscribe: []string{"*"}}))
		n = nil
	}
	var all sync.WaitGroup
	all.Go(func() {
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
	w.close = func() { cancel(); all.Wait() }
	return w
}

func (w *watcher) take(r *discoveryv3.DeltaDiscoveryResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	note := func(name string, body []byte) {
		if w.has[r.GetTypeUrl()+"/"+name] = body; body == nil {
			delete(w.has, r.GetTypeUrl()+"/"+name)
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

// is says whether the client has what is wanted, and nothing else.
func (w *watcher) is(want map[string][]byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.EqualFunc(want, w.has, bytes.Equal)
}

// bodiesFor returns what a catalog has for a client.
func bodiesFor(t *testing.T, c *Catalog, n *corev3.Node) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for _, url := range dumped {
		coll, release, err := c.Collection(context.Background(), n, url)
		require.NoError(t, err)
		defer release()
		for e := range coll.All() {
			var body anypb.Any
			require.NoError(t, proto.Unmarshal(e.Any, &body))
			all[url+"/"+e.Name] = body.GetValue()
		}
	}
	return all
}

var policyName = regexp.MustCompile(`ns\[[a-z-]*\]-policy\[[a-z-]*\]`)

// inboundChains returns the policies of each filter chain of an inbound listener; nil if it is none.
func inboundChains(t *testing.T, body []byte) map[string]map[string]bool {
	t.Helper()
	var l listenerv3.Listener
	require.NoError(t, proto.Unmarshal(body, &l))
	if l.GetTrafficDirection() != corev3.TrafficDirection_INBOUND {
		return nil
	}
	all := make(map[string]map[string]bool)
	for _, chain := range l.GetFilterChains() {
		names := make(map[string]bool)
		for _, f := range chain.GetFilters() {
			for _, name := range policyName.FindAll(f.GetTypedConfig().GetValue(), -1) {
				names[string(name)] = true
			}
		}
		all[chain.GetName()+" "+chain.GetFilterChainMatch().String()] = names
	}
	return all
}

// settled checks that what is at rest before and after was there in between, and begins anew.
func (w *watcher) settled(t *testing.T, what string) (policies int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, versions := range w.seen {
		key := xds.ListenerURL + "/" + name
		before, after := inboundChains(t, w.rest[key]), inboundChains(t, w.has[key])
		if w.rest[key] == nil || w.has[key] == nil || before == nil || after == nil {
			continue
		}
		for _, version := range versions {
			require.NotNil(t, version, "%s: %s was away", what, name)
			between := inboundChains(t, version)
			for chain, had := range before {
				if after[chain] == nil {
					continue
				}
				require.NotNil(t, between[chain], "%s: %s, %s was away", what, name, chain)
				for policy := range had {
					if after[chain][policy] {
						policies++
						require.True(t, between[chain][policy], "%s: %s, %s was without %s", what, name, chain, policy)
					}
				}
			}
		}
	}
	clear(w.seen)
	w.rest = maps.Clone(w.has)
	return policies
}

// randomNode is a client at one of a few places.
func randomNode(r *rand.Rand) *corev3.Node {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	n := node(pick("shop", "shop", "default", "nobodys"), pick("REDIRECT", "REDIRECT", "TPROXY", "NONE"), "")
	if r.IntN(3) == 0 {
		n = nodeAs(n, pick(model.IdentitySPIRE, "/etc/identity"))
	}
	if r.IntN(3) == 0 {
		n = nodeWith(n, "app", "two")
	}
	if r.IntN(4) == 0 {
		n = versioned(n)
	}
	if r.IntN(3) == 0 {
		return withAddresses(pick("10.0.0.1,fd00::1", "fd00::1,10.0.0.2", "10.0.0.2"), n)
	}
	return at(pick("10.0.0.1", "10.0.0.1", "10.0.0.2", "192.0.2.1"), n)
}

// Clients that come, go and stay have in the end what a fresh catalog would give them, and what their inbound listeners have before and
// after a change they have in between: chains, and policies. ENVOY_MODEL_SEEDS asks for more.
func TestInboundOfClientsThatComeAndGo(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("ENVOY_MODEL_SEEDS"), "2"), 10, 64)
	require.NoError(t, err)
	kept := 0
	for seed := range seeds {
		kinds := []resource.Kind{
			resource.ServiceEntry, resource.ServiceEntry, resource.WorkloadEntry, resource.PeerAuthentication, resource.AuthorizationPolicy,
			resource.AuthorizationPolicy, resource.Sidecar, resource.EnvoyFilter, resource.DestinationRule,
		}
		if seed%2 == 1 {
			kinds = []resource.Kind{resource.ServiceEntry, resource.Sidecar, resource.Sidecar, resource.AuthorizationPolicy}
		}
		h := envoytest.New(seed, kinds...)
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		s := serve(t)
		conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		var all []*watcher
		var since memstore.Revision
		for step := range 60 {
			for len(all) < 8 {
				all = append(all, watch(t, conn, randomNode(r)))
			}
			for range 1 + step%2 {
				h.Change()
			}
			snap := s.follow(&h.Table, since)
			since = snap.Revision()
			fresh := New(&h.Table, Options{Log: slog.New(slog.DiscardHandler)})
			fresh.update(nil, snap, false, true)
			for i, w := range all {
				want := bodiesFor(t, fresh, w.node)
				what := fmt.Sprintf("seed %d, step %d, client %d: %v", seed, step, i, w.node)
				s.eventually(func() bool { return w.is(want) }, what)
				kept += w.settled(t, what)
			}
			if r.IntN(2) == 0 {
				i := r.IntN(len(all))
				all[i].close()
				all = append(all[:i], all[i+1:]...)
			}
		}
		_ = conn.Close() // ends all clients
	}
	require.Positive(t, kept)
}
