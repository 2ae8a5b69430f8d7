package relay

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/envoy"
	"tributary/server/identity"
	"tributary/server/mcp"
	"tributary/server/transport"
	"tributary/server/xds"
)

// The model of access: each object has a mark that no other object has. A client gets the objects that it requests and
// that its rule allows, as if there were no others; no byte of its responses contains the mark of another object.

var (
	someNamespaces = []string{"prod", "prod-eu", "test", "web"}
	someSources    = []string{"files", "dc1", "dc2", "dc1, dc2"}
	someKinds      = []resource.Kind{
		resource.ServiceEntry, resource.WorkloadEntry, resource.VirtualService, resource.DestinationRule,
		resource.Gateway,
	}
)

// mark is that of an object, which is also its name.
func mark(n int) string { return fmt.Sprintf("mark%03dq", n) }

// marked makes an object. Other objects may have the same host, and a rule may allow only one of them.
func marked(t require.TestingT, n int, kind resource.Kind, namespace, source string, shared bool) *resource.Resource {
	host := "NAME.example"
	if shared {
		host = "shared.example"
	}
	spec := map[resource.Kind]string{
		resource.ServiceEntry: "{hosts: [HOST], ports: [{number: 80, name: http-NAME, protocol: HTTP}], " +
			"resolution: STATIC, location: MESH_INTERNAL, " +
			"endpoints: [{address: 10.0.0.N, labels: {app: NAME}, locality: NAME/z/s}]}",
		resource.WorkloadEntry: "{address: 10.0.1.N, labels: {app: any}, locality: NAME/z/s}",
		resource.VirtualService: "{hosts: [HOST], gateways: [mesh, NAME], " +
			"http: [{name: NAME, route: [{destination: {host: HOST}, headers: {request: {set: {x: NAME}}}}]}]}",
		resource.DestinationRule: "{host: HOST, subsets: [{name: NAME, labels: {v: NAME}}]}",
		resource.Gateway: "{selector: {istio: g}, servers: [{hosts: ['*'], name: NAME, " +
			"port: {number: 80, name: http, protocol: HTTP}}]}",
	}[kind]
	if kind == resource.ServiceEntry && n%3 == 0 {
		spec = spec[:strings.Index(spec, "endpoints")] + "workloadSelector: {labels: {app: any}}}"
	}
	schema, _ := resource.SchemaOf(kind)
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {namespace: %s, name: NAME}\nspec: %s\n", schema.APIVersion(),
		kind, namespace, strings.ReplaceAll(spec, "HOST", host))
	text = strings.NewReplacer("NAME", mark(n), "0.N", fmt.Sprint("0.", n), "1.N", fmt.Sprint("1.", n)).Replace(text)
	document := resource.Decode("x.yaml", []byte(text), resource.Options{})[0]
	require.NoError(t, document.Errors.Err())
	return document.Resource.WithOrigin(resource.Origin{Source: source})
}

// simple is the model of a rule. The patterns that the test draws have a star only at their end.
func simple(permissions access.Permissions, r *resource.Resource) bool {
	contains := func(list []string, text string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(glob string) bool {
			if cut, ok := strings.CutSuffix(glob, "*"); ok {
				return strings.HasPrefix(text, cut)
			}
			return glob == text
		})
	}
	for source := range strings.SplitSeq(r.Origin().Source, ", ") {
		if !contains(permissions.Sources, source) {
			return false
		}
	}
	return contains(permissions.Kinds, string(r.Key().Kind)) && contains(permissions.Namespaces, r.Key().Namespace)
}

// guardedServer is a server behind a guard.
type guardedServer struct {
	store   *memstore.Store
	guard   *access.Admission
	address string
	tokens  []string
	stop    func()
}

func guardServer(t require.TestingT, dir string, rules access.Rules) *guardedServer {
	s := &guardedServer{store: memstore.New(resource.Schemas()...)}
	file := filepath.Join(dir, "tokens")
	var text strings.Builder
	for i := range rules {
		token, line, err := identity.NewToken(fmt.Sprintf("t%d", i))
		require.NoError(t, err)
		s.tokens = append(s.tokens, token)
		text.WriteString(line)
	}
	token, line, err := identity.NewToken("nobody")
	require.NoError(t, err)
	s.tokens = append(s.tokens, token)
	require.NoError(t, os.WriteFile(file, []byte(text.String()+line), 0o600))
	log := slog.New(slog.DiscardHandler)
	proofs, err := identity.NewAuthenticator(identity.Settings{Tokens: file}, log)
	require.NoError(t, err)
	s.guard = access.NewAdmission(access.Policy{Rules: rules, Authenticator: proofs}, log, nil)
	hops := mcp.NewHops("test")
	var engine *xds.Server
	c := catalogs{
		mcp: mcp.New(s.store, mcp.Options{Log: log, Hops: hops}), envoy: envoy.New(s.store, envoy.Options{Log: log}),
		restricted: newRestrictedViews(s.store, func(part memstore.Reader, rights *access.Rights) *envoy.Catalog {
			catalog := envoy.New(part, envoy.Options{Log: log, Sees: rights.AllowsNamespace})
			catalog.SetReview(engine.Review) // clients with changed labels request their profile again
			return catalog
		}),
	}
	engine = xds.NewServer(c, xds.Options{Log: log, Namespace: "tributary"})
	c.envoy.SetReview(engine.Review)
	server := newGRPC(engine, transport.NewLimiter(engine, transport.Limits{}, slog.Default()), insecure.NewCredentials(), s.guard, hops,
		health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at once
	require.NoError(t, err)
	s.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = c.mcp.Run(ctx) })
	parts.Go(func() { _ = c.envoy.Run(ctx) })
	parts.Go(func() { _ = c.restricted.run(ctx) })
	parts.Go(func() { _ = server.Serve(listener) })
	s.stop = func() {
		server.Stop()
		engine.Close()
		cancel()
		parts.Wait()
	}
	return s
}

// watcher is a stream that records its responses.
type watcher struct {
	mu       sync.Mutex
	bytes    []byte                       // all that came
	versions map[string]map[string]string // by type: name to version
	removed  map[string]bool
	answers  int
	err      error
	ended    chan struct{}
}

func (w *watcher) note(raw proto.Message, typeURL string, change func(versions map[string]string) map[string]string) {
	text, _ := proto.Marshal(raw)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes = append(w.bytes, text...)
	w.versions[typeURL] = change(w.versions[typeURL])
	w.answers++
}

// ask is a request of the model.
type ask struct {
	typeURL string
	names   []string // "*" or names
	resume  []string // names that the client says that it has
}

func (s *guardedServer) watch(t require.TestingT, ctx context.Context, token string, node *corev3.Node, delta bool,
	asks []ask,
) (*watcher, *grpc.ClientConn) {
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	w := &watcher{versions: make(map[string]map[string]string), removed: make(map[string]bool), ended: make(chan struct{})}
	client := discovery.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		stream, err := client.DeltaAggregatedResources(ctx)
		require.NoError(t, err)
		for _, a := range asks {
			req := &discovery.DeltaDiscoveryRequest{
				Node: node, TypeUrl: a.typeURL, ResourceNamesSubscribe: a.names,
				InitialResourceVersions: make(map[string]string),
			}
			for _, name := range a.resume {
				req.InitialResourceVersions[name] = "of old"
			}
			_ = stream.Send(req)
		}
		go func() {
			defer close(w.ended)
			for {
				r, err := stream.Recv()
				if err != nil {
					w.err = err
					return
				}
				w.note(r, r.GetTypeUrl(), func(versions map[string]string) map[string]string {
					if versions == nil {
						versions = make(map[string]string)
					}
					for _, received := range r.GetResources() {
						if received.GetResource() != nil {
							versions[received.GetName()] = received.GetVersion()
						}
					}
					for _, name := range r.GetRemovedResources() {
						delete(versions, name)
						w.removed[name] = true
					}
					return versions
				})
				_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
			}
		}()
		return w, conn
	}
	stream, err := client.StreamAggregatedResources(ctx)
	require.NoError(t, err)
	for _, a := range asks {
		names := a.names
		if slices.Contains(names, "*") {
			names = nil
		}
		_ = stream.Send(&discovery.DiscoveryRequest{Node: node, TypeUrl: a.typeURL, ResourceNames: names})
	}
	go func() {
		defer close(w.ended)
		for {
			r, err := stream.Recv()
			if err != nil {
				w.err = err
				return
			}
			w.note(r, r.GetTypeUrl(), func(map[string]string) map[string]string {
				return map[string]string{"responses": fmt.Sprint(len(r.GetResources()))}
			})
			var names []string
			for _, a := range asks {
				if a.typeURL == r.GetTypeUrl() && !slices.Contains(a.names, "*") {
					names = a.names
				}
			}
			_ = stream.Send(&discovery.DiscoveryRequest{
				TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), VersionInfo: r.GetVersionInfo(),
				ResourceNames: names,
			})
		}
	}()
	return w, conn
}

func TestAccess_SendsOnlyAllowedObjects(t *testing.T) {
	t.Parallel()
	envoyTypes := []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL}
	short := map[string]string{xds.ClusterURL: "clusters", xds.EndpointURL: "endpoints", xds.ListenerURL: "listeners", xds.RouteURL: "routes"}
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one for each draw
		require.NoError(rt, err)
		pick := func(field string, from []string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, 2, func(s string) string { return s }).Draw(rt, field)
		}
		var allows []access.Permissions
		rules := access.Rules{}
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			permissions := access.Permissions{
				Kinds:      pick("kinds", []string{"ServiceEntry", "VirtualService", "Service*", "W*", "Gateway"}),
				Namespaces: pick("namespaces", []string{"prod", "prod*", "test", "*"}),
				Sources:    pick("sources", []string{"files", "dc*", "dc1", "dc2"}),
				Types:      pick("types", []string{"clusters", "endpoints", "listeners", "routes"}),
			}
			allows = append(allows, permissions)
			rules = append(rules, access.Rule{
				Match: access.Match{access.Token: {fmt.Sprintf("t%d", i)}}, Rights: access.NewRights(permissions),
			})
		}
		guardedServer := guardServer(rt, dir, rules)
		defer guardedServer.stop()
		var objects []*resource.Resource
		draw := func(n int) *resource.Resource {
			return marked(rt, n, rapid.SampledFrom(someKinds).Draw(rt, "kind"), rapid.SampledFrom(someNamespaces).Draw(rt, "namespace"),
				rapid.SampledFrom(someSources).Draw(rt, "source"), rapid.Bool().Draw(rt, "shared"))
		}
		for n := range rapid.IntRange(1, 12).Draw(rt, "objects") {
			objects = append(objects, draw(n))
		}
		guardedServer.store.Apply(objects, nil)
		guardedServer.store.MarkSynced()

		me := rapid.IntRange(0, len(allows)).Draw(rt, "client")
		delta := rapid.Bool().Draw(rt, "delta")
		node := &corev3.Node{Id: rapid.SampledFrom([]string{"sidecar~10.0.0.1~a.prod~prod.svc", "router~10.0.0.1~a.test~test.svc", "x"}).Draw(rt,
			"node"), Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"LABELS": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"istio": structpb.NewStringValue("g")}}),
		}}}
		var names []string
		for _, r := range objects {
			names = append(names, r.Key().FullName(), "outbound|80||"+r.Key().Name+".example", "outbound|80||shared.example", "80")
		}
		var asks []ask
		kinds := rapid.SliceOfNDistinct(rapid.SampledFrom(someKinds), 1, 3, func(k resource.Kind) resource.Kind { return k }).Draw(rt, "asked")
		for _, kind := range kinds {
			schema, _ := resource.SchemaOf(kind)
			asks = append(asks, ask{typeURL: schema.TypeURL()})
		}
		for _, url := range rapid.SliceOfNDistinct(rapid.SampledFrom(envoyTypes), 0, 4, func(u string) string { return u }).Draw(rt,
			"asked of Envoy") {
			asks = append(asks, ask{typeURL: url})
		}
		var steps []string
		for i := range asks {
			asks[i].names = []string{"*"}
			if rapid.Bool().Draw(rt, "by name") {
				asks[i].names = names
			}
			if rapid.Bool().Draw(rt, "resumes") {
				asks[i].resume = names
			}
			if asks[i].resume != nil || asks[i].names[0] != "*" {
				steps = names
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		w, conn := guardedServer.watch(rt, ctx, guardedServer.tokens[me], node, delta, asks)
		defer func() {
			cancel()
			require.NoError(rt, conn.Close())
			<-w.ended
		}()
		if me == len(allows) {
			<-w.ended
			require.Equal(rt, codes.PermissionDenied, status.Code(w.err))
			require.Zero(rt, w.answers)
			seen["refused"]++
			return
		}
		allow := allows[me]
		check := func() {
			var mine []*resource.Resource
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, r := range objects {
				if simple(allow, r) {
					mine = append(mine, r)
					continue
				}
				require.NotContains(rt, masked(w.bytes, steps), r.Key().Name, "%+v sees %s of %s", allow, r.Key(), r.Origin().Source)
			}
			if len(mine) < len(objects) {
				seen["some hidden"]++
			}
			if len(mine) > 0 {
				seen["some seen"]++
			}
		}
		settled := func() {
			wait := func(ok func() bool) {
				for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
					select {
					case <-w.ended:
						require.Fail(rt, "the stream ended", "%v", w.err)
					default:
					}
					require.True(rt, time.Now().Before(deadline), "%+v: %v of %v: %v", allow, w.versions, asks, objects)
				}
			}
			for _, a := range asks {
				kind := resource.Kind(a.typeURL[strings.LastIndex(a.typeURL, "/")+1:])
				want := map[string]string{}
				if envoy.Serves(a.typeURL) {
					if a.names[0] != "*" || len(allow.Types) > 0 && !slices.Contains(allow.Types, short[a.typeURL]) {
						continue
					}
					want = toldOf(rt, node, a.typeURL, slices.DeleteFunc(slices.Clone(objects),
						func(r *resource.Resource) bool { return !simple(allow, r) }))
				}
				for _, r := range objects {
					if r.Key().Kind == kind && simple(allow, r) {
						want[r.Key().FullName()] = r.Version()
					}
				}
				if !delta {
					want = map[string]string{"responses": fmt.Sprint(len(want))}
				}
				wait(func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return w.versions[a.typeURL] != nil && maps.Equal(w.versions[a.typeURL], want)
				})
			}
		}
		settled()
		check()
		if delta {
			for _, a := range asks {
				for _, name := range a.resume {
					kind := a.typeURL[strings.LastIndex(a.typeURL, "/")+1:]
					if i := slices.IndexFunc(objects, func(r *resource.Resource) bool { return r.Key().FullName() == name }); i >= 0 &&
						string(objects[i].Key().Kind) == kind && !simple(allow, objects[i]) {
						w.mu.Lock()
						require.True(rt, w.removed[name], "%s is as if it had gone", name)
						w.mu.Unlock()
						seen["resumed what is hidden"]++
					}
				}
			}
		}
		// Objects change their content, and also their namespaces and sources, which makes them other objects.
		for n := range rapid.IntRange(0, 4).Draw(rt, "changes") {
			i := rapid.IntRange(0, len(objects)-1).Draw(rt, "at")
			next := draw(100 + n)
			guardedServer.store.Apply([]*resource.Resource{next}, []resource.Key{objects[i].Key()})
			objects[i] = next
		}
		if slices.ContainsFunc(asks, func(a ask) bool { return !slices.Contains(a.names, "*") }) {
			check()
			return // new ones are not asked for
		}
		settled()
		check()
	})
	for _, event := range []string{"refused", "some hidden", "some seen", "resumed what is hidden"} {
		require.NotZero(t, seen[event], "the test does not show: %v", seen)
	}
}

// toldOf returns the responses to a client if these are the only objects and there are no rules.
func toldOf(t require.TestingT, node *corev3.Node, typeURL string, objects []*resource.Resource) map[string]string {
	store := memstore.New(resource.Schemas()...)
	store.Apply(objects, nil)
	store.MarkSynced()
	catalog := envoy.New(store, envoy.Options{Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = catalog.Run(ctx) })
	ask := func() (*xds.Collection, func()) {
		coll, release, err := catalog.Collection(ctx, node, typeURL)
		require.NoError(t, err)
		return coll, release
	}
	coll, release := ask()
	for deadline := time.Now().Add(patience); !coll.Synced(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline))
	}
	release()
	coll, release = ask() // now that it is known which labels tell clients apart
	defer release()
	require.True(t, coll.Synced())
	responses := make(map[string]string)
	for e := range coll.All() {
		responses[e.Name] = e.Version
	}
	return responses
}

// masked returns bytes without the names that the client sent itself, since a response may repeat the names of missing
// resources.
func masked(b []byte, names []string) string {
	names = slices.SortedFunc(slices.Values(names), func(a, b string) int { return len(b) - len(a) }) // those given may be on their way
	for _, name := range names {
		b = bytes.ReplaceAll(b, []byte(name), nil)
	}
	return string(b)
}
