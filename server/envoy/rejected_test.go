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

// follow copies the changes of another table since a revision to the served table, and returns the other table's
// snapshot.
func (s *served) follow(source *memstore.Table, revision memstore.Revision) memstore.Snapshot {
	keys, snap, _ := source.Changes(revision)
	var puts []*resource.Resource
	var deletes []resource.Key
	for _, key := range keys {
		if object := snap.Get(key); object != nil {
			puts = append(puts, object)
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
	server := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(server)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { _ = s.catalog.Run(ctx) })
	background.Go(func() { _ = server.Serve(listener) })
	require.NoError(t, s.catalog.awaitMesh(ctx))
	t.Cleanup(func() {
		server.Stop()
		engine.Close()
		stop()
		background.Wait()
	})
	return s
}

func (s *served) eventually(ok func() bool, condition string) {
	s.Helper()
	require.Eventually(s, ok, time.Minute, 5*time.Millisecond, condition)
}

// critic is a client that takes the routes of port 80, all clusters and all resources of further types, and rejects
// those that it dislikes. As an Envoy does, it keeps its former resources if it dislikes one of a response.
type critic struct {
	mu        sync.Mutex
	resources map[string][]byte // by type and name
	nacks     int
	lost      []string // resources that the server removed
	// dislikes returns the reason for a rejection, or an empty text
	dislikes func(typeURL, name string, body []byte) string
}

const bad = "BAD"

// disliking rejects resources that contain bad, and names no resource.
func disliking(_, _ string, body []byte) string {
	if bytes.Contains(body, []byte(bad)) {
		return "something is wrong with it"
	}
	return ""
}

func (s *served) critic(n *corev3.Node, dislikes func(typeURL, name string, body []byte) string, types ...string) *critic {
	s.Helper()
	c := &critic{resources: make(map[string][]byte), dislikes: dislikes}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s, err)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background())
	require.NoError(s, err)
	var receiver sync.WaitGroup
	s.Cleanup(func() {
		_ = conn.Close()
		receiver.Wait()
	})
	require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: xds.ClusterURL}))
	require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.RouteURL, ResourceNamesSubscribe: []string{"80"}}))
	for _, url := range types {
		require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{"*"}}))
	}
	receiver.Go(func() {
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
		c.resources[r.GetTypeUrl()+"/"+res.GetName()] = res.GetResource().GetValue()
	}
	for _, name := range r.GetRemovedResources() {
		if c.resources[r.GetTypeUrl()+"/"+name] != nil {
			c.lost = append(c.lost, r.GetTypeUrl()+"/"+name)
		}
		delete(c.resources, r.GetTypeUrl()+"/"+name)
	}
	return ""
}

// hasRoutes says whether the routes of port 80 have all of the texts.
func (c *critic) hasRoutes(texts ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(c.resources[xds.RouteURL+"/80"], []byte(text)) })
}

// answering is a VirtualService of a host of its own that answers with a text.
func answering(t *testing.T, name, text string) *resource.Resource {
	t.Helper()
	return decoded(t, fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: default}\n"+
		"spec: {hosts: [%[1]s.internal], http: [{directResponse: {status: 200, body: {string: %q}}}]}\n", name, text))[0]
}

func keyOf(name string) resource.Key {
	return resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: name}
}

// several are VirtualServices with the same text at the end.
func several(t *testing.T, n int, text string) (objects []*resource.Resource, texts []string) {
	t.Helper()
	for i := range n {
		texts = append(texts, fmt.Sprintf("vs%d-%s.", i, text))
		objects = append(objects, answering(t, fmt.Sprintf("vs%d", i), texts[i]))
	}
	return objects, texts
}

func serviceEntry(t *testing.T, name string) *resource.Resource {
	t.Helper()
	return decoded(t, fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: default}\n"+
		"spec: {hosts: [%[1]s.internal], ports: [{number: 80, protocol: HTTP}], resolution: STATIC}\n", name))[0]
}

func versionsSeen(c *Catalog) map[string]string {
	versions := make(map[string]string)
	for _, s := range c.currentScopes() {
		for _, coll := range s.list() {
			for name, version := range versionsIn(coll) {
				versions[s.profile.String()+" "+name] = version
			}
		}
	}
	return versions
}

// Attackers reject all resources, or the new ones, from the start or later, and name any resource: other clients still
// get all resources, and these do not depend on the attackers.
func TestRejections_DoNotAffectOtherClients(t *testing.T) {
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
	haveRoutes := func(texts []string) func() bool {
		return func() bool { return honest.hasRoutes(texts...) && undisturbed.hasRoutes(texts...) }
	}
	s.eventually(haveRoutes(before), "the first routes")
	next, now := several(t, 8, "now")
	for _, server := range []*served{s, quiet} {
		server.table.Apply(next, nil)
	}
	s.eventually(haveRoutes(now), "changed and new routes")
	s.eventually(func() bool {
		return !slices.ContainsFunc(attackers, func(c *critic) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.nacks == 0
		})
	}, "each attacker has rejected a resource")
	late := s.critic(nodes[0], likes)
	s.eventually(func() bool { return late.hasRoutes(now...) }, "a new client gets all routes")
	require.Equal(t, versionsSeen(quiet.catalog), versionsSeen(s.catalog))
}

// rejection waits for the only rejection that there is, and returns it.
func (s *served) rejection() (coll *xds.Collection, rejection xds.Rejection) {
	s.Helper()
	s.eventually(func() bool {
		count := 0
		for c := range s.engine.EachClient() {
			for _, typeStatus := range c.Types {
				for _, rejected := range typeStatus.Rejected {
					coll, rejection = typeStatus.Collection, rejected
					count++
				}
			}
		}
		return count == 1
	}, "a rejection")
	return coll, rejection
}

// A rejection names the resource, and leads to the objects that have changed since the client acknowledged the
// resource: no others, and all of them, however often the client rejects it.
func TestRejection_NamesChangedObjects(t *testing.T) {
	first, before := several(t, 3, "before")
	s := serve(t, first...)
	c := s.critic(nodes[0], disliking)
	s.eventually(func() bool { return c.hasRoutes(before...) }, "the client has the first routes")
	s.table.Apply([]*resource.Resource{answering(t, "vs1", bad)}, nil)
	coll, rejection := s.rejection()
	require.Equal(t, "80", rejection.Name)
	require.Equal(t, "something is wrong with it", rejection.Error)
	require.NotEmpty(t, rejection.Acked)
	changed, complete := s.catalog.ChangedSince(coll, rejection)
	require.True(t, complete)
	require.Equal(t, []resource.Key{keyOf("vs1")}, changed)

	s.table.Apply([]*resource.Resource{answering(t, "vs2", "vs2-now.")}, nil)
	s.eventually(func() bool {
		_, next := s.rejection()
		return next.Version != rejection.Version
	}, "the next version is rejected as well")
	_, nextRejection := s.rejection()
	require.Equal(t, rejection.Acked, nextRejection.Acked)
	require.Equal(t, rejection.Since, nextRejection.Since)
	changed, _ = s.catalog.ChangedSince(coll, nextRejection)
	require.Equal(t, []resource.Key{keyOf("vs1"), keyOf("vs2")}, changed)

	s.table.Apply([]*resource.Resource{answering(t, "vs1", "corrected.")}, nil)
	s.eventually(func() bool { return c.hasRoutes("vs0-before.", "corrected.", "vs2-now.") }, "the client takes the corrected routes")
	s.eventually(func() bool {
		return !slices.ContainsFunc(s.engine.Clients(), func(c xds.ClientStatus) bool {
			return slices.ContainsFunc(c.Types, func(t xds.TypeStatus) bool { return len(t.Rejected) > 0 })
		})
	}, "no resource is rejected any more")
}

// Changes that are no longer remembered are reported as unknown.
func TestForgottenChanges_ReportedUnknown(t *testing.T) {
	var c changedObjects
	for i := range maxChanged + 1 {
		c.note(keyOf(strconv.Itoa(i)), memstore.Revision(i+1)) //nolint:gosec // it is small
	}
	changed, complete := c.changedAfter(maxChanged)
	require.True(t, complete)
	require.Equal(t, map[resource.Key]bool{keyOf(strconv.Itoa(maxChanged)): true}, changed)
	_, complete = c.changedAfter(0)
	require.False(t, complete)
}

// A rejection is explained while the options of listeners change.
func TestChangedSince_BesideChanges(t *testing.T) {
	const telemetry = `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: t, namespace: shop}
spec: {accessLogging: [{providers: [{name: envoy}], filter: {expression: 'response.code >= %d'}}]}
`
	steps := newSteps(Options{}, decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}"))...)
	client := nodeAt("10.0.0.1", node("shop", "REDIRECT", ""))
	listeners, release, err := steps.c.Collection(t.Context(), client, xds.ListenerURL)
	require.NoError(t, err)
	defer release()
	var rejections sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	rejections.Go(func() {
		for ctx.Err() == nil {
			steps.c.ChangedSince(listeners, xds.Rejection{Name: "virtualInbound"})
		}
	})
	for code := 400; code < 440; code++ {
		steps.apply(decoded(t, fmt.Sprintf(telemetry, code)))
	}
	stop()
	rejections.Wait()
	suspects, _ := steps.c.ChangedSince(listeners, xds.Rejection{Name: "virtualInbound"})
	require.Equal(t, []resource.Key{{Kind: resource.Telemetry, Namespace: "shop", Name: "t"}}, suspects)
}

// The list of suspects is incomplete for a client that leaves while its rejection is explained.
func TestChangedSince_WhileClientLeaves(t *testing.T) {
	steps := newSteps(Options{}, decoded(t, rejectedBase)...)
	clusters, release, err := steps.c.Collection(t.Context(), node("default", "NONE", ""), xds.ClusterURL)
	require.NoError(t, err)
	defer release()
	rejection := xds.Rejection{Name: "outbound|80||a.example"}
	_, complete := steps.c.ChangedSince(clusters, rejection)
	require.True(t, complete)
	for following := range steps.c.following {
		following.dropped = true // the part of dropScope that can come after the scope was found
	}
	_, complete = steps.c.ChangedSince(clusters, rejection)
	require.False(t, complete)
}
