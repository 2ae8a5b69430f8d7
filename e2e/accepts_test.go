package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy"
	"tributary/server/envoy/binary"
	"tributary/server/envoy/envoytest"
	"tributary/server/xds"
)

// A real Envoy accepts the resources of any mesh: the quickstart, Istio's own samples, and random valid meshes (1,000
// in the nightly run).
func TestEnvoyAccepts(t *testing.T) {
	t.Parallel()
	t.Run("quickstart", func(t *testing.T) { require.NoError(t, accepts(t, quickstart(t))) })
	t.Run("samples", func(t *testing.T) {
		for _, s := range samples(t) {
			require.NoError(t, accepts(t, meshOf(t, s.objects)), s.file)
		}
	})
	t.Run("bad", func(t *testing.T) { // invalid objects, which lenient validation lets through
		for _, file := range []string{"bad.yaml", "refused.yaml", "logs.yaml"} {
			objects := decoded(t, filepath.Join("..", "server", "envoy", "testdata", file))
			require.NoError(t, accepts(t, meshOf(t, objects)), file)
		}
	})
	t.Run("random", func(t *testing.T) {
		meshes := byNight(40, 1000)
		for from := 0; from < meshes; from += 20 {
			var batch []*memstore.Table
			for seed := from; seed < min(meshes, from+20); seed++ {
				m := envoytest.New(uint64(seed), changedKinds[:seed%2*len(changedKinds)]...) //nolint:gosec // small
				for range 20 {
					m.Change()
				}
				batch = append(batch, &m.Table)
			}
			if accepts(t, batch...) == nil {
				continue
			}
			for i, m := range batch { // which one it is
				assert.NoError(t, accepts(t, m), "seed %d", from+i)
			}
		}
	})
}

// changedKinds are the kinds of meshes with many changes of EnvoyFilters.
var changedKinds = []resource.Kind{
	resource.ServiceEntry, resource.VirtualService, resource.Gateway, resource.EnvoyFilter, resource.EnvoyFilter, resource.DestinationRule,
}

// accepts returns Envoy's message if it rejects a resource of the meshes.
func accepts(t *testing.T, meshes ...*memstore.Table) error {
	t.Helper()
	for _, m := range meshes {
		for i, resources := range servedTo(t, m, envoytest.Nodes) {
			rejections, err := binary.Check(t.Context(), fixture.EnvoyBinary(t), resources)
			if err != nil {
				return err
			}
			for _, r := range rejections {
				return fmt.Errorf("envoy %d rejects %s: %s", i, r.Resources, r.Text)
			}
		}
	}
	return nil
}

// servedTo returns the resources that Envoys get from a mesh.
func servedTo(t *testing.T, mesh *memstore.Table, nodes []envoytest.Node) (served [][]proto.Message) {
	t.Helper()
	c := envoy.New(mesh, envoy.Options{Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	mesh.MarkSynced()
	go func() { _ = c.Run(ctx) }()
	// The server reviews the profiles of clients that connect before that; this test has no server.
	first, _, err := c.Collection(t.Context(), &corev3.Node{}, xds.ClusterURL)
	require.NoError(t, err)
	require.Eventually(t, first.Synced, 10*time.Second, time.Millisecond)
	for _, n := range nodes {
		fields, err := structpb.NewStruct(n.Metadata)
		require.NoError(t, err)
		var messages []proto.Message
		routes := make(map[string]*routev3.RouteConfiguration)
		for _, url := range []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL, xds.SecretURL, xds.VHostURL} {
			coll, _, err := c.Collection(grpc.NewContextWithServerTransportStream(t.Context(), delta{}), &corev3.Node{Id: n.ID, Metadata: fields},
				url)
			if url == xds.VHostURL && n.Metadata["ON_DEMAND"] == nil {
				require.ErrorIs(t, err, xds.ErrNoAnswer)
				continue
			}
			require.NoError(t, err)
			require.Eventually(t, coll.Synced, 10*time.Second, time.Millisecond)
			for e := range coll.All() {
				var body anypb.Any
				require.NoError(t, proto.Unmarshal(e.Any, &body))
				m, err := body.UnmarshalNew()
				require.NoError(t, err)
				switch m := m.(type) {
				case *routev3.RouteConfiguration:
					routes[m.GetName()], m.Vhds = m, nil
				case *routev3.VirtualHost: // as if all had been asked for
					name, _, _ := strings.Cut(m.GetName(), "/")
					routes[name].VirtualHosts = append(routes[name].VirtualHosts, m)
					continue
				}
				messages = append(messages, m)
			}
		}
		served = append(served, messages)
	}
	return served
}

// delta is the stream of a client that speaks it.
type delta struct{ grpc.ServerTransportStream }

func (delta) Method() string {
	return "/" + discoveryv3.AggregatedDiscoveryService_ServiceDesc.ServiceName + "/DeltaAggregatedResources"
}

func meshOf(t *testing.T, objects []*resource.Resource) *memstore.Table {
	t.Helper()
	require.NotEmpty(t, objects)
	table := new(memstore.Table)
	table.Apply(objects, nil)
	return table
}

func quickstart(t *testing.T) *memstore.Table {
	t.Helper()
	var objects []*resource.Resource
	dir := fixture.Testdata("quickstart")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		objects = append(objects, decoded(t, filepath.Join(dir, f.Name()))...)
	}
	return meshOf(t, objects)
}

func decoded(t *testing.T, file string) (objects []*resource.Resource) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, d := range resource.Decode(filepath.Base(file), content, resource.Options{}) {
		require.Empty(t, d.Errors)
		if d.Resource != nil {
			objects = append(objects, d.Resource)
		}
	}
	return objects
}
