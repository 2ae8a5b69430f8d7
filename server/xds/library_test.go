package xds

import (
	"context"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/internal/testutil"
	"tributary/internal/xdstest"
)

// singleTypeCatalog is a catalog that answers for one type only.
type singleTypeCatalog struct{ *fixture }

func (s singleTypeCatalog) Collection(ctx context.Context, n *corev3.Node, typeURL string) (*Collection, func(), error) {
	if typeURL != testType {
		return nil, nil, ErrNoAnswer
	}
	return s.fixture.Collection(ctx, n, typeURL)
}

func TestUnansweredType_KeepsStreamOpen(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.server.catalog = singleTypeCatalog{w}
		w.set(testType, "a")
		c := dial()
		c.Ask("other")
		c.Ask("other", "b")
		c.Silence()
		c.Ask(testType)
		c.Expect(testType, "a@1") // the stream goes on
		require.Len(t, w.server.Clients()[0].Types, 1)
	})
}

func TestMissingMarkSynced_Logged(t *testing.T) {
	var buffer testutil.Buffer
	w := newFixture(t, Options{Log: buffer.Logger()})
	w.server.unsyncedAfter = time.Millisecond
	w.delta().Ask(testType)
	eventually(t, func() bool { return strings.Contains(buffer.String(), "MarkSynced") })
	require.Contains(t, buffer.String(), testType)
}

func TestMissingServerOptions_Logged(t *testing.T) {
	var buffer testutil.Buffer
	fixture := newFixture(t, Options{Log: buffer.Logger()})
	g := grpc.NewServer()
	fixture.server.Register(g)
	addr, stop := xdstest.Serve(t, g)
	defer stop()
	fixture.addr = addr
	c := fixture.sotw()
	c.Ask(testType)
	require.Error(t, c.Ended())
	eventually(t, func() bool { return strings.Contains(buffer.String(), "request cannot be decoded") })
	require.Contains(t, buffer.String(), errNoOptions.Error())
}

func TestEntryWithoutVersion_UsesContentHash(t *testing.T) {
	coll := NewCollection(TypeOf(testType), Debounce{})
	first, entry := padded(t, "a", "", "one"), padded(t, "a", "", "two")
	require.True(t, coll.Apply(Commit{Put: []*Entry{first}}))
	require.Equal(t, VersionOf(first.Any), coll.Get("a").Version)
	require.False(t, coll.Apply(Commit{Put: []*Entry{padded(t, "a", "", "one")}}))
	require.True(t, coll.Apply(Commit{Put: []*Entry{entry}}), "it would never be sent")
	require.Empty(t, entry.Version, "Apply does not change its arguments")
}

func TestReusedVersion_Logged(t *testing.T) {
	for name, commits := range map[string][2]Commit{
		"of an entry":     {{Put: []*Entry{thing(t, "a@1")}}, {Put: []*Entry{padded(t, "a", "1", "other")}}},
		"of a collection": {{Version: "1"}, {Put: []*Entry{thing(t, "a@1")}, Version: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var buffer testutil.Buffer
			group := NewGroup(Debounce{})
			group.Log = buffer.Logger()
			coll := group.Collection(TypeOf(testType))
			coll.Apply(commits[0])
			coll.Apply(commits[0])
			require.Empty(t, buffer.String())
			coll.Apply(commits[1])
			require.Contains(t, buffer.String(), "a version was used again for other content")
		})
	}
}

func TestEntriesOfEnvoy(t *testing.T) {
	cluster := &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	e, err := NewEntry(cluster)
	require.NoError(t, err)
	require.Equal(t, "c", e.Child)
	require.Equal(t, VersionOf(e.Any), e.Version)
	cluster.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"}
	require.Equal(t, "s", ChildOf(cluster))
	require.Empty(t, ChildOf(&clusterv3.Cluster{Name: "static"}))
	require.Equal(t, "s", NameOf(&endpointv3.ClusterLoadAssignment{ClusterName: "s"}))
	_, err = NewEntry(wrapperspb.String("nameless"))
	require.ErrorContains(t, err, "google.protobuf.StringValue has no name")
}

func TestInvalidEntries_Ignored(t *testing.T) {
	var buffer testutil.Buffer
	group := NewGroup(Debounce{})
	group.Log = buffer.Logger()
	coll := group.Collection(TypeOf(testType))
	good := thing(t, "a@1")
	coll.Apply(Commit{Put: []*Entry{nil, {Version: "1"}, {Name: "*", Version: "1"}, {Name: "x", Version: "1", Any: []byte("no Any")}, good}})
	require.Equal(t, 1, coll.Len())
	require.Equal(t, 4, strings.Count(buffer.String(), "invalid entry ignored"), buffer.String())
	require.Contains(t, buffer.String(), "x: Any is not an encoded google.protobuf.Any")
}
