package mcp

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serviceEntry(t require.TestingT, ns, name, rev, host string) *resource.Resource {
	labels := map[string]string{}
	if rev != "" {
		labels[resource.RevisionLabel] = rev
	}
	r, err := resource.New(
		resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: ns, Name: name}, Labels: labels},
		&networking.ServiceEntry{Hosts: []string{host}},
	)
	require.NoError(t, err)
	return r
}

func node(t require.TestingT, metadata map[string]any) *corev3.Node {
	s, err := structpb.NewStruct(metadata)
	require.NoError(t, err)
	return &corev3.Node{Metadata: s}
}

// start runs a catalog of a new store until the test ends.
func start(t *testing.T) (*memstore.Store, *Catalog) {
	store := memstore.New(resource.Schemas()...)
	catalog := New(store, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- catalog.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-stopped, context.Canceled)
	})
	return store, catalog
}

func collection(t require.TestingT, c *Catalog, n *corev3.Node, typeURL string) (*xds.Collection, func()) {
	coll, release, err := c.Collection(context.Background(), n, typeURL)
	require.NoError(t, err)
	if release == nil {
		release = func() {}
	}
	return coll, release
}

func entries(coll *xds.Collection) map[string]string {
	m := make(map[string]string)
	for e := range coll.All() {
		m[e.Name] = e.Version
	}
	return m
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, time.Millisecond)
}

func TestAliasesShareACollection(t *testing.T) {
	store, catalog := start(t)
	store.Apply([]*resource.Resource{serviceEntry(t, "a", "x", "", "x.example")}, nil)
	store.MarkSynced()
	v1, _ := collection(t, catalog, nil, "networking.istio.io/v1/ServiceEntry")
	for _, version := range []string{"v1alpha3", "v1beta1", "v7"} {
		alias, _ := collection(t, catalog, nil, "networking.istio.io/"+version+"/ServiceEntry")
		require.Same(t, v1, alias, version)
	}
	eventually(t, func() bool { return v1.Len() == 1 && v1.Synced() })
}

func TestCollection_SyncedWithView(t *testing.T) {
	store, c := start(t)
	coll, _ := collection(t, c, nil, "networking.istio.io/v1/ServiceEntry")
	store.Apply([]*resource.Resource{serviceEntry(t, "a", "x", "", "x.example")}, nil)
	eventually(t, func() bool { return coll.Len() == 1 })
	require.False(t, coll.Synced())
	store.MarkSynced()
	eventually(t, coll.Synced)
}

func TestUnservedTypes_EmptyOrRefused(t *testing.T) {
	_, catalog := start(t)
	coll, _ := collection(t, catalog, nil, "future.istio.io/v1/Novelty")
	require.True(t, coll.Synced(), "istiod waits for an answer")
	require.Zero(t, coll.Len())
	coll, _ = collection(t, catalog, nil, "other.io/v1/ServiceEntry")
	require.Zero(t, coll.Len())
	for _, typeURL := range []string{"ServiceEntry", "//", "a//b"} {
		_, _, err := catalog.Collection(context.Background(), nil, typeURL)
		require.Equal(t, codes.Unimplemented, status.Code(err), typeURL)
	}
	for _, typeURL := range []string{
		xds.ClusterURL, "type.googleapis.com/a/b", "type.googleapis.com/istio.networking.nds.v1.NameTable",
		"type.googleapis.com/istio.v1.HealthInformation",
	} {
		_, _, err := catalog.Collection(context.Background(), nil, typeURL)
		require.ErrorIs(t, err, xds.ErrNoAnswer, "the stream of an Envoy goes on, and an empty answer to %s would clear it", typeURL)
	}
}

func TestMeshConfig_ServedWithoutMetadataToAll(t *testing.T) {
	store, catalog := start(t)
	key := resource.Key{Kind: resource.MeshConfig, Name: "istio"}
	mesh, err := resource.New(resource.Meta{Key: key}, &meshv1alpha1.MeshConfig{RootNamespace: "root"})
	require.NoError(t, err)
	store.Apply([]*resource.Resource{mesh}, nil)
	store.MarkSynced()
	coll, release := collection(t, catalog, node(t, map[string]any{metadataNamespaces: "a"}), "core/v1alpha1/MeshConfig")
	defer release()
	eventually(t, func() bool { return coll.Len() == 1 })
	require.Contains(t, string(coll.Get("istio").Content()), "type.googleapis.com/istio.mesh.v1alpha1.MeshConfig")
}

func TestFilters(t *testing.T) {
	for _, tt := range []struct {
		name     string
		metadata map[string]any
		want     []string
	}{
		{"none", nil, []string{"a/blue", "a/green", "a/plain", "b/plain"}},
		{"revision", map[string]any{metadataRevision: "blue"}, []string{"a/blue", "a/plain", "b/plain"}},
		{"one namespace", map[string]any{metadataNamespaces: "b"}, []string{"b/plain"}},
		{"namespaces in a string", map[string]any{metadataNamespaces: " b, zz,"}, []string{"b/plain"}},
		{"namespaces in a list", map[string]any{metadataNamespaces: []any{"b", "a"}}, []string{"a/blue", "a/green", "a/plain", "b/plain"}},
		{"both", map[string]any{metadataRevision: "green", metadataNamespaces: "a"}, []string{"a/green", "a/plain"}},
		{"neither of a type we know", map[string]any{metadataNamespaces: 7.0}, []string{"a/blue", "a/green", "a/plain", "b/plain"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, catalog := start(t)
			early, release := collection(t, catalog, node(t, tt.metadata), "networking.istio.io/v1/ServiceEntry")
			defer release()
			store.Apply([]*resource.Resource{
				serviceEntry(t, "a", "plain", "", "p.example"), serviceEntry(t, "a", "blue", "blue", "b.example"),
				serviceEntry(t, "a", "green", "green", "g.example"), serviceEntry(t, "b", "plain", "", "b.example"),
			}, nil)
			store.MarkSynced()
			eventually(t, early.Synced)
			require.Equal(t, tt.want, slices.Sorted(maps.Keys(entries(early))))
			late, release := collection(t, catalog, node(t, tt.metadata), "networking.istio.io/v1/ServiceEntry")
			defer release()
			require.Same(t, early, late, "equal filters share")
		})
	}
}

// After any changes of the store, and with clients with filters that come and go at any time, each family has exactly
// the objects of the store that match its filter.
func TestFamiliesFollowTheStore(t *testing.T) {
	filters := []filter{{}, {revision: "r1"}, {namespaces: []string{"n1"}}, {revision: "r2", namespaces: []string{"n1", "n2"}}}
	rapid.Check(t, func(t *rapid.T) {
		store := memstore.New(resource.Schemas()...)
		catalog := New(store, Options{})
		var revision memstore.Revision
		for step := range rapid.IntRange(1, 20).Draw(t, "steps") {
			var puts []*resource.Resource
			var deletes []resource.Key
			for range rapid.IntRange(0, 5).Draw(t, "changes") {
				r := serviceEntry(t, rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "ns"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"),
					rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "rev"), rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "host"))
				if rapid.Bool().Draw(t, "delete") {
					deletes = append(deletes, r.Key())
				} else {
					puts = append(puts, r)
				}
			}
			store.Apply(puts, deletes)
			keys, snap, ok := store.Changes(revision)
			catalog.update(keys, snap, ok && step > 0 && rapid.Bool().Draw(t, "incremental"), false)
			revision = snap.Revision()
			_, _, err := catalog.acquire(context.Background(), rapid.SampledFrom(filters).Draw(t, "filter"), "")
			require.NoError(t, err)
			for family := range catalog.following {
				want := map[string]string{}
				for r := range snap.All() {
					if family.filter.matches(r) {
						want[r.Key().FullName()] = r.Version()
					}
				}
				require.Equal(t, want, entries(family.kinds[resource.ServiceEntry]))
			}
		}
	})
}

// visit is a client of a revision that comes and goes.
func visit(t *testing.T, c *Catalog, revision string) *xds.Collection {
	coll, release := collection(t, c, node(t, map[string]any{metadataRevision: revision}), "networking.istio.io/v1/ServiceEntry")
	release()
	return coll
}

func TestIdleFamilies_DroppedAboveCost(t *testing.T) {
	_, catalog := start(t)
	for i := range 2 * maxIdleCost / familyCost {
		visit(t, catalog, strconv.Itoa(i))
	}
	require.LessOrEqual(t, len(catalog.following), maxIdleCost/familyCost+1)
}

func TestFiltersInUse_Limited(t *testing.T) {
	testutil.OneGoroutine(t)
	_, c := start(t)
	const typeURL = "networking.istio.io/v1/ServiceEntry"
	_, release := collection(t, c, nil, typeURL)
	defer release()
	for i := range maxFamilies {
		_, release := collection(t, c, node(t, map[string]any{metadataRevision: strconv.Itoa(i)}), typeURL)
		defer release()
	}
	_, _, err := c.Collection(t.Context(), node(t, map[string]any{metadataRevision: "more"}), typeURL)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	visit(t, c, "1") // a client that shares a filter can connect
	_, _, err = c.Collection(t.Context(), node(t, map[string]any{metadataRevision: strings.Repeat("r", maxFilterBytes)}), typeURL)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// A host that invents filters does not use up those of other hosts; package families has the rules.
func TestFiltersOfHost_Limited(t *testing.T) {
	_, c := start(t)
	use := func(host, revision string) error {
		t.Helper()
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 1}})
		_, release, err := c.Collection(ctx, node(t, map[string]any{metadataRevision: revision}), "networking.istio.io/v1/ServiceEntry")
		if err == nil {
			t.Cleanup(release)
		}
		return err
	}
	require.NoError(t, use("10.0.0.1", ""))
	for i := range maxOfHost {
		require.NoError(t, use("10.0.0.1", strconv.Itoa(i)))
	}
	err := use("10.0.0.1", "more")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "in use by 10.0.0.1: the limit is 100")
	require.Error(t, use("::ffff:10.0.0.1", "more"), "the same host")
	require.NoError(t, use("10.0.0.2", "others"))
	require.Error(t, use("10.0.0.1", "others"), "though another host made it")
	require.NoError(t, use("10.0.0.1", "7")) // which it uses
	require.NoError(t, use("10.0.0.1", ""))
}

// A family that is made while the view changes ends up with the objects of the view that match its filter.
func TestFamilies_MadeDuringViewChanges(t *testing.T) {
	store, c := start(t)
	store.MarkSynced()
	var objects []*resource.Resource
	for i := range 300 {
		objects = append(objects, serviceEntry(t, "a", strconv.Itoa(i%20), strconv.Itoa(i%3), strconv.Itoa(i)+".example"))
	}
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		for i, r := range objects {
			if i%3 == 2 {
				store.Apply(nil, []resource.Key{r.Key()})
			} else {
				store.Apply([]*resource.Resource{r}, nil)
			}
		}
	}()
	colls := make(map[string]*xds.Collection)
	for i := range 30 {
		rev, madeUp := strconv.Itoa(i%3), "x"+strconv.Itoa(i)
		coll, release := collection(t, c, node(t, map[string]any{metadataRevision: rev, metadataNamespaces: "a," + madeUp}),
			"networking.istio.io/v1/ServiceEntry")
		defer release()
		colls[rev+madeUp] = coll
	}
	<-applied
	for name, coll := range colls {
		f, want := filter{revision: name[:1]}, map[string]string{}
		for r := range f.visible(store.Snapshot(), resource.ServiceEntry) {
			want[r.Key().FullName()] = r.Version()
		}
		eventually(t, func() bool { return maps.Equal(want, entries(coll)) })
	}
}

// A revision or namespace that no object can have is refused: the client would wait for objects that never come.
func TestImpossibleNames_Refused(t *testing.T) {
	_, catalog := start(t)
	for _, metadata := range []map[string]any{
		{metadataNamespaces: []any{"priv pub"}},
		{metadataNamespaces: "a,B"},
		{metadataNamespaces: []any{"a/b"}},
		{metadataRevision: "r/"},
		{metadataRevision: "a b"},
		{metadataNamespaces: []any{strings.Repeat("a", 64)}},
	} {
		_, _, err := catalog.Collection(t.Context(), node(t, metadata), "networking.istio.io/v1/ServiceEntry")
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", metadata)
		require.ErrorContains(t, err, "node metadata ")
		require.False(t, Visible(node(t, metadata), serviceEntry(t, "a", "x", "", "x.example")))
	}
}

// reviewing looks up the collections of clients once more, as an xds.Server does.
type reviewing func()

func (r reviewing) Review() { r() }

// Revisions and namespaces without objects share one family. Before an object with such a revision arrives, the clients
// that requested it get a family of their own.
func TestUnknownFilters_ShareFamily(t *testing.T) {
	store := memstore.New(resource.Schemas()...)
	catalog := New(store, Options{})
	familyCount, reviews := 0, 0
	see := func(metadata map[string]any) *xds.Collection {
		coll, _ := collection(t, catalog, node(t, metadata), "networking.istio.io/v1/ServiceEntry")
		return coll
	}
	honest := map[string]any{metadataRevision: "r2", metadataNamespaces: "n1,n2"}
	var sees *xds.Collection
	catalog.ReviewBy(reviewing(func() {
		reviews++
		sees = see(honest)
		require.ElementsMatch(t, []string{"n1/x"}, slices.Collect(maps.Keys(entries(sees))), "the object is not visible yet")
	}))
	revision := memstore.Revision(0)
	update := func(puts []*resource.Resource, deletes ...resource.Key) {
		store.Apply(puts, deletes)
		keys, snap, ok := store.Changes(revision)
		catalog.update(keys, snap, ok, true)
		revision = snap.Revision()
	}
	update([]*resource.Resource{serviceEntry(t, "n1", "x", "", "x.example"), serviceEntry(t, "n1", "y", "r1", "y.example")})
	for i := range 1000 {
		require.Len(t, entries(see(map[string]any{metadataRevision: "made-up-" + strconv.Itoa(i)})), 1)
		require.Empty(t, entries(see(map[string]any{metadataNamespaces: "made-up-" + strconv.Itoa(i)})))
	}
	familyCount = len(catalog.following)
	require.Equal(t, 1+2, familyCount)
	sees = see(honest)
	update([]*resource.Resource{serviceEntry(t, "n1", "x", "", "x2.example")})
	require.Zero(t, reviews, "the change has no new revision or namespace")
	update([]*resource.Resource{serviceEntry(t, "n1", "z", "r2", "z.example")})
	require.Equal(t, 1, reviews)
	require.ElementsMatch(t, []string{"n1/x", "n1/z"}, slices.Collect(maps.Keys(entries(sees))))
	require.Len(t, entries(see(map[string]any{metadataRevision: "made-up"})), 1)
	deletedKey := serviceEntry(t, "n1", "z", "r2", "z.example").Key()
	update(nil, deletedKey)
	require.Len(t, entries(sees), 1)
	require.Zero(t, catalog.attributes[attribute{revision: "r2"}])
}
