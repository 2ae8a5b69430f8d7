package envoy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// These tests hold scopes that had no clients for some time. A model of clients that come and go found the bugs.

// services returns count services on port 80, each with one endpoint.
func services(t testing.TB, count int, address string) []*resource.Resource {
	var text strings.Builder
	for i := range count {
		_, _ = fmt.Fprintf(&text, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: s%d, namespace: ns}\n"+
			"spec: {hosts: [s%[1]d.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: "+
			"%s}]}\n---\n", i, address)
	}
	return decoded(t, text.String())
}

// selecting returns an object that gives clients of a namespace a profile of their own.
func selecting(t testing.TB, namespace string) []*resource.Resource {
	return decoded(t, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: d, namespace: "+namespace+"}\n"+
		"spec: {host: nothing}\n")
}

// steps applies changes to a table and brings a catalog up to date.
type steps struct {
	table memstore.Table
	log   bytes.Buffer
	c     *Catalog
}

func newSteps(opts Options, first ...*resource.Resource) *steps {
	s := &steps{}
	s.table.Apply(first, nil)
	opts.Log = slog.New(slog.NewTextHandler(&s.log, nil))
	s.c = New(&s.table, opts)
	s.c.reset(s.table.Snapshot(), true)
	return s
}

func (s *steps) apply(puts []*resource.Resource, deletes ...resource.Key) {
	revision := s.table.Snapshot().Revision()
	s.table.Apply(puts, deletes)
	keys, snap, ok := s.table.Changes(revision)
	s.c.update(keys, snap, ok, true)
}

// change applies the objects of a text.
func (s *steps) change(t *testing.T, text string, deletes ...resource.Key) {
	t.Helper()
	s.apply(decoded(t, text), deletes...)
}

// visit has a client come.
func (s *steps) visit(t *testing.T, namespace, typeURL string) (*xds.Collection, func()) {
	coll, release, err := s.c.Collection(t.Context(), node(namespace, "", ""), typeURL)
	require.NoError(t, err)
	return coll, release
}

// old returns the number of resources that have an address.
func old(c *xds.Collection, address string) (n int) {
	for e := range c.All() {
		if bytes.Contains(e.Any, []byte(address)) {
			n++
		}
	}
	return n
}

// hooked is a context that calls hook when its Err has been called so many times.
type hooked struct {
	context.Context
	mu    sync.Mutex
	calls int
	hook  func()
}

func (h *hooked) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls--; h.calls == -1 {
		h.hook()
	}
	return h.Context.Err()
}

// A client that goes while its scope is brought up to date costs later clients no change, and no translation is left
// behind.
func TestDepartingClient_LeavesNoTranslations(t *testing.T) {
	const count = 250
	s := newSteps(Options{}, services(t, count, "10.0.0.1")...)
	_, release := s.visit(t, "ns", xds.EndpointURL)
	release()
	s.apply(services(t, count, "10.0.0.2"))
	for calls := 0; ; calls++ {
		ctx, hangUp := context.WithCancel(t.Context())
		_, release, err := s.c.Collection(&hooked{Context: ctx, calls: calls, hook: hangUp}, node("ns", "", ""), xds.EndpointURL)
		hangUp()
		if err == nil {
			release()
			break
		}
	}
	endpoints, release := s.visit(t, "ns", xds.EndpointURL)
	release()
	require.Zero(t, old(endpoints, "10.0.0.1"))
	for idle := range s.c.following {
		s.c.dropScope(idle)
	}
	requireNoTranslations(t, s.c)
}

// Services that go while a client that comes back is brought up to date are gone for it, too.
func TestServicesDeletedDuringCatchUp_Removed(t *testing.T) {
	for calls := range 3 {
		steps := newSteps(Options{}, services(t, 1, "10.0.0.9")...)
		_, release := steps.visit(t, "ns", xds.EndpointURL)
		release()
		passing := services(t, 300, "10.0.0.1")
		steps.apply(passing)
		var keys []resource.Key
		for _, r := range passing {
			keys = append(keys, r.Key())
		}
		ctx := &hooked{Context: t.Context(), calls: calls, hook: func() { steps.apply(nil, keys...) }}
		endpoints, release, err := steps.c.Collection(ctx, node("ns", "", ""), xds.EndpointURL)
		require.NoError(t, err)
		require.Negative(t, ctx.calls)
		require.Zero(t, old(endpoints, "10.0.0.1"), "after %d", calls)
		release()
	}
}

// A client that comes while another one has the scope brought up to date waits for that.
func TestClient_WaitsForRunningCatchUp(t *testing.T) {
	steps := newSteps(Options{}, services(t, 3, "10.0.0.1")...)
	_, release := steps.visit(t, "ns", xds.EndpointURL)
	release()
	steps.apply(services(t, 3, "10.0.0.2"))
	steps.apply(services(t, 4, "10.0.0.2")) // so that routes are encoded
	steps.c.bodies.routes.mu.Lock()         // which takes its time
	var clients sync.WaitGroup
	clients.Go(func() { steps.visit(t, "ns", xds.EndpointURL) })
	require.Eventually(t, func() bool {
		for followed := range steps.c.following {
			return !followed.behind.Load()
		}
		return false
	}, time.Minute, time.Millisecond)
	clients.Go(func() {
		endpoints, _ := steps.visit(t, "ns", xds.EndpointURL)
		assert.Zero(t, old(endpoints, "10.0.0.1"))
	})
	for range 100 {
		runtime.Gosched()
	}
	steps.c.bodies.routes.mu.Unlock()
	clients.Wait()
}

func hasClients(c *Catalog) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for s := range c.following {
		if s.clients.Load() > 0 {
			return true
		}
	}
	return false
}

// A returning client does not get the outdated resources from the time of its disconnect, even if changes are
// debounced.
func TestReturningClient_DoesNotWaitForDebounce(t *testing.T) {
	served := serveWith(t, Options{Debounce: xds.Debounce{Quiet: time.Hour}}, services(t, 1, "10.0.0.1")...)
	conn, err := grpc.NewClient(served.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ask := func() []byte {
		ctx, hangUp := context.WithCancel(t.Context())
		defer served.eventually(func() bool { return !hasClients(served.catalog) }, "the client is gone")
		defer hangUp()
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(&discoveryv3.DiscoveryRequest{
			Node: node("ns", "", ""), TypeUrl: xds.EndpointURL, ResourceNames: []string{"outbound|80||s0.internal"},
		}))
		got, err := stream.Recv()
		require.NoError(t, err)
		return got.GetResources()[0].GetValue()
	}
	require.Contains(t, string(ask()), "10.0.0.1")
	served.table.Apply(services(t, 1, "10.0.0.2"), nil)
	served.eventually(func() bool { return len(served.catalog.currentScopes()) == 0 }, "the scope is behind")
	require.Contains(t, string(ask()), "10.0.0.2")
}

// A change does not wait for scopes that clients have brought up to date.
func TestChange_DoesNotWaitForReturningClients(t *testing.T) {
	steps := newSteps(Options{}, append(services(t, 3, "10.0.0.1"), selecting(t, "ns")...)...)
	stays, release := steps.visit(t, "other", xds.EndpointURL)
	defer release()
	_, release = steps.visit(t, "ns", xds.EndpointURL)
	release()
	steps.apply(services(t, 3, "10.0.0.2"))
	for followed := range steps.c.following {
		if followed.behind.Load() {
			followed.clients.Add(1) // as a client does that waits for its turn
			followed.catching.Lock()
			defer followed.catching.Unlock()
		}
	}
	steps.apply(services(t, 3, "10.0.0.3")) // returns
	require.Equal(t, 3, old(stays, "10.0.0.3"))
}

// A scope gives way to changes for some time only.
func TestScope_GivesWayForLimitedTime(t *testing.T) {
	t.Parallel()
	steps := newSteps(Options{})
	giveWay := steps.c.givingWay()
	steps.c.changing.Lock()
	go func() {
		time.Sleep(maxGivingWay)
		steps.c.changing.Unlock()
	}()
	giveWay()
	steps.c.changing.Lock()
	defer steps.c.changing.Unlock()
	giveWay() // returns
}

// A scope without clients does not note every host that ever was.
func TestScopeWithoutClients_BoundsStaleHosts(t *testing.T) {
	steps := newSteps(Options{}, services(t, 1, "10.0.0.1")...)
	clusters, release := steps.visit(t, "ns", xds.ClusterURL)
	release()
	passing := func(i int) []*resource.Resource {
		return decoded(t, fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: passing, namespace: ns}\n"+
			"spec: {hosts: [passing-%d.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}\n", i))
	}
	for i := range 1000 {
		steps.apply(passing(i))
	}
	for idle := range steps.c.following {
		require.Less(t, len(idle.stale), 100)
	}
	before := clusters.Len()
	clusters, release = steps.visit(t, "ns", xds.ClusterURL)
	defer release()
	require.Equal(t, before+1, clusters.Len())
	require.NotNil(t, clusters.Get("outbound|80||passing-999.internal"))
}

// Routes with equal virtual hosts are encoded once, however often endpoints have changed in between, and no longer kept
// than they are used.
func TestEqualRoutes_EncodedOnce(t *testing.T) {
	const profiles = 10
	steps := newSteps(Options{}, services(t, 20, "10.0.0.1")...)
	for i := range profiles {
		steps.apply(selecting(t, fmt.Sprint("x", i)))
	}
	for i := range profiles {
		_, release := steps.visit(t, fmt.Sprint("x", i), xds.RouteURL)
		defer release()
		steps.apply(services(t, 1, fmt.Sprint("10.0.1.", i)))
	}
	steps.apply(services(t, 21, "10.0.0.1"))
	require.Len(t, steps.c.following, profiles)
	entries := make(map[*xds.Entry]bool)
	for followed := range steps.c.following {
		entries[followed.routes.Get("80")] = true
	}
	require.Len(t, entries, 1)
	live := 0
	for _, encoded := range steps.c.bodies.routes.values {
		if routes := encoded.Value(); routes != nil && entries[routes.entry] {
			live++
		}
	}
	require.Equal(t, 1, live)
}

// A security object that is not enforced is logged once, when there are clients.
func TestUnenforcedObject_LoggedOnce(t *testing.T) {
	s := newSteps(Options{}, services(t, 1, "10.0.0.1")...)
	_, release := s.visit(t, "ns", xds.ClusterURL)
	release()
	s.apply(decoded(t, "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: deny, namespace: ns}\nspec: {}\n"))
	require.NotContains(t, s.log.String(), "deny")
	for i := range 5 {
		_, release := s.visit(t, "ns", xds.ClusterURL)
		require.Len(t, s.c.Unenforced(), 1)
		s.apply(services(t, 1, fmt.Sprint("10.0.0.", i)))
		release()
		require.Empty(t, s.c.Unenforced())
		s.apply(services(t, 1, fmt.Sprint("10.0.1.", i)))
	}
	require.Equal(t, 1, strings.Count(s.log.String(), "ns/deny"))
}

// When the last object goes that distinguishes a client from others, its streams ask for their collections again: else
// the types that it asks for later would be of another scope.
func TestRemovedSelector_ReviewsClients(t *testing.T) {
	steps := newSteps(Options{}, decoded(t, shared+"---"+selecting0)...)
	reviews := 0
	steps.c.SetReview(func() { reviews++ })
	steps.apply(nil, resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: "canary"})
	require.Positive(t, reviews)
	p := model.ProfileOf(nodeWith(nodes[0], "pod-index", "0"))
	steps.c.selectProfile(&p, nil, nil)
	require.Empty(t, p.Labels)
}
