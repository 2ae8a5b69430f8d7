package envoy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// served is a catalog with an engine in front of it.
type served struct {
	*testing.T
	table   memstore.Table
	catalog *Catalog
	engine  *xds.Server
	addr    string
}

// follow brings to the served table what has changed in another one since a revision, and returns the snapshot of that.
func (s *served) follow(other *memstore.Table, since memstore.Revision) memstore.Snapshot {
	keys, snap, _ := other.Changes(since)
	var puts []*resource.Resource
	var deletes []resource.Key
	for _, key := range keys {
		if of := snap.Get(key); of != nil {
			puts = append(puts, of)
		} else {
			deletes = append(deletes, key)
		}
	}
	s.table.Apply(puts, deletes)
	return snap
}

func serve(t *testing.T, first ...*resource.Resource) *served {
	t.Helper()
	return serveWith(t, Options{}, first...)
}

func serveWith(t *testing.T, opts Options, first ...*resource.Resource) *served {
	t.Helper()
	return serveBy(t, xds.Options{}, opts, first...)
}

func serveBy(t *testing.T, engineOpts xds.Options, opts Options, first ...*resource.Resource) *served {
	t.Helper()
	s := &served{T: t}
	s.table.Apply(first, nil)
	s.table.MarkSynced()
	quiet := slog.New(slog.DiscardHandler)
	opts.Log = quiet
	s.catalog = New(&s.table, opts)
	engineOpts.Log = quiet
	engine := xds.NewServer(s.catalog, engineOpts)
	s.engine = engine
	s.catalog.SetReview(engine.Review)
	g := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(g)
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = lis.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = s.catalog.Run(ctx) })
	all.Go(func() { _ = g.Serve(lis) })
	require.NoError(t, s.catalog.awaitMesh(ctx))
	t.Cleanup(func() {
		g.Stop()
		engine.Close()
		stop()
		all.Wait()
	})
	return s
}

func (s *served) eventually(ok func() bool, what string) {
	s.Helper()
	require.Eventually(s, ok, time.Minute, 5*time.Millisecond, what)
}

// critic is a client that takes the routes of port 80, and all clusters, and all of other types, as far as it likes them. As an Envoy does,
// it goes on with what it had of a response of which it does not like something.
type critic struct {
	mu    sync.Mutex
	has   map[string][]byte // by type and name
	nacks int
	lost  []string // what it had and was told to remove
	// dislikes says why a resource is rejected, or nothing
	dislikes func(typeURL, name string, body []byte) string
}

const bad = "BAD"

// disliking dislikes what is bad, and says nothing else.
func disliking(_, _ string, body []byte) string {
	if bytes.Contains(body, []byte(bad)) {
		return "something is wrong with it"
	}
	return ""
}

func (s *served) critic(n *corev3.Node, dislikes func(typeURL, name string, body []byte) string, types ...string) *critic {
	s.Helper()
	c := &critic{has: make(map[string][]byte), dislikes: dislikes}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s, err)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background())
	require.NoError(s, err)
	var all sync.WaitGroup
	s.Cleanup(func() {
		_ = conn.Close()
		all.Wait()
	})
	require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: xds.ClusterURL}))
	require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.RouteURL, ResourceNamesSubscribe: []string{"80"}}))
	for _, url := range types {
		require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{"*"}}))
	}
	all.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
			if why := c.take(r); why != "" {
				req.ErrorDetail = &rpcstatus.Status{Message: why}
			}
			if stream.Send(req) != nil {
				return
			}
		}
	})
	return c
}

func (c *critic) take(r *discoveryv3.DeltaDiscoveryResponse) (why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, res := range r.GetResources() {
		if why = c.dislikes(r.GetTypeUrl(), res.GetName(), res.GetResource().GetValue()); why != "" {
			c.nacks++
			return why
		}
	}
	for _, res := range r.GetResources() {
		c.has[r.GetTypeUrl()+"/"+res.GetName()] = res.GetResource().GetValue()
	}
	for _, name := range r.GetRemovedResources() {
		if c.has[r.GetTypeUrl()+"/"+name] != nil {
			c.lost = append(c.lost, r.GetTypeUrl()+"/"+name)
		}
		delete(c.has, r.GetTypeUrl()+"/"+name)
	}
	return ""
}

// hasRoutes says whether the routes of port 80 have all of the texts.
func (c *critic) hasRoutes(texts ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(c.has[xds.RouteURL+"/80"], []byte(text)) })
}

// answering is a VirtualService of a host of its own that answers with a text.
func answering(t *testing.T, name, text string) *resource.Resource {
	t.Helper()
	return virtual(t, name, &networking.VirtualService{Hosts: []string{name + ".internal"}, Http: []*networking.HTTPRoute{{
		DirectResponse: &networking.HTTPDirectResponse{
			Status: 200,
			Body:   &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: text}},
		},
	}}})
}

func keyOf(name string) resource.Key {
	return resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: name}
}

// several are VirtualServices with the same text at the end.
func several(t *testing.T, n int, text string) (all []*resource.Resource, texts []string) {
	t.Helper()
	for i := range n {
		texts = append(texts, fmt.Sprintf("vs%d-%s.", i, text))
		all = append(all, answering(t, fmt.Sprintf("vs%d", i), texts[i]))
	}
	return all, texts
}

func serviceEntry(t *testing.T, name string) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: name}},
		&networking.ServiceEntry{
			Hosts: []string{name + ".internal"}, Ports: []*networking.ServicePort{{Number: 80, Protocol: "HTTP"}},
			Resolution: networking.ServiceEntry_STATIC,
		})
	require.NoError(t, err)
	return r
}

func versionsSeen(c *Catalog) map[string]string {
	all := make(map[string]string)
	for _, s := range c.current() {
		for _, coll := range s.list() {
			for name, version := range versionsIn(coll) {
				all[s.profile.String()+" "+name] = version
			}
		}
	}
	return all
}

// Attackers reject everything, or what is new, from the start or later, and name what they like: others are served all that there is, and
// what they are served does not depend on it.
func TestWhatOneClientRejectsChangesNothingForOthers(t *testing.T) {
	first, before := several(t, 4, "before")
	s, quiet := serve(t, first...), serve(t, first...) // the second without attackers
	likes := func(string, string, []byte) string { return "" }
	honest, undisturbed := s.critic(nodes[0], likes), quiet.critic(nodes[0], likes)
	var attackers []*critic
	for i := range 8 {
		attackers = append(attackers, s.critic(nodes[0], func(url, name string, body []byte) string {
			if i%2 == 0 || bytes.Contains(body, []byte("now.")) || bytes.Contains(body, []byte("new.")) {
				return "I do not like " + name
			}
			return ""
		}, xds.ListenerURL, xds.EndpointURL))
	}
	has := func(texts []string) func() bool {
		return func() bool { return honest.hasRoutes(texts...) && undisturbed.hasRoutes(texts...) }
	}
	s.eventually(has(before), "what there is from the start")
	next, now := several(t, 8, "now")
	for _, one := range []*served{s, quiet} {
		one.table.Apply(next, nil)
	}
	s.eventually(has(now), "what has changed and what is new")
	s.eventually(func() bool {
		return !slices.ContainsFunc(attackers, func(c *critic) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.nacks == 0
		})
	}, "everybody has rejected something")
	late := s.critic(nodes[0], likes)
	s.eventually(func() bool { return late.hasRoutes(now...) }, "who comes now is told all of it")
	require.Equal(t, versionsSeen(quiet.catalog), versionsSeen(s.catalog))
}

// rejection waits for the only rejection that there is, and returns it.
func (s *served) rejection() (coll *xds.Collection, r xds.Rejection) {
	s.Helper()
	s.eventually(func() bool {
		found := 0
		for c := range s.engine.EachClient() {
			for _, one := range c.Types {
				for _, rejected := range one.Rejected {
					coll, r = one.Collection, rejected
					found++
				}
			}
		}
		return found == 1
	}, "a rejection")
	return coll, r
}

// A rejection names the resource, and leads to the objects that have changed since the client acknowledged the resource: no others, and all
// of them, however often the client rejects it.
func TestARejectionLeadsToWhatHasChanged(t *testing.T) {
	first, before := several(t, 3, "before")
	s := serve(t, first...)
	c := s.critic(nodes[0], disliking)
	s.eventually(func() bool { return c.hasRoutes(before...) }, "it has what there is")
	s.table.Apply([]*resource.Resource{answering(t, "vs1", bad)}, nil)
	coll, r := s.rejection()
	require.Equal(t, "80", r.Name)
	require.Equal(t, "something is wrong with it", r.Error)
	require.NotEmpty(t, r.Acked)
	changed, complete := s.catalog.ChangedSince(coll, r)
	require.True(t, complete)
	require.Equal(t, []resource.Key{keyOf("vs1")}, changed)

	s.table.Apply([]*resource.Resource{answering(t, "vs2", "vs2-now.")}, nil)
	s.eventually(func() bool {
		_, again := s.rejection()
		return again.Version != r.Version
	}, "the next version is rejected as well")
	_, again := s.rejection()
	require.Equal(t, r.Acked, again.Acked)
	require.Equal(t, r.Since, again.Since)
	changed, _ = s.catalog.ChangedSince(coll, again)
	require.Equal(t, []resource.Key{keyOf("vs1"), keyOf("vs2")}, changed)

	s.table.Apply([]*resource.Resource{answering(t, "vs1", "mended.")}, nil)
	s.eventually(func() bool { return c.hasRoutes("vs0-before.", "mended.", "vs2-now.") }, "it takes what was mended")
	s.eventually(func() bool {
		return !slices.ContainsFunc(s.engine.Clients(), func(c xds.ClientStatus) bool {
			return slices.ContainsFunc(c.Types, func(t xds.TypeStatus) bool { return len(t.Rejected) > 0 })
		})
	}, "nothing is rejected any more")
}

// What changed so long ago that it is no longer remembered is said to be unknown.
func TestChangesThatAreForgottenAreUnknown(t *testing.T) {
	var c changedObjects
	for i := range maxChanged + 1 {
		c.note(keyOf(strconv.Itoa(i)), memstore.Revision(i+1)) //nolint:gosec // it is small
	}
	all, complete := c.changedAfter(maxChanged)
	require.True(t, complete)
	require.Equal(t, map[resource.Key]bool{keyOf(strconv.Itoa(maxChanged)): true}, all)
	_, complete = c.changedAfter(0)
	require.False(t, complete)
}
