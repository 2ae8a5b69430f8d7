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
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/xds"
)

// roamer is a client that accepts all resources, and reconnects with its resources as another node.
type roamer struct {
	t     *testing.T
	conn  *grpc.ClientConn
	node  *corev3.Node
	close func()

	mu        sync.Mutex
	resources map[string][]byte            // by type and name
	versions  map[string]map[string]string // by type
	failed    error
}

func (w *roamer) put(url, name, version string, body []byte) {
	w.resources[url+"/"+name] = body
	if w.versions[url] == nil {
		w.versions[url] = make(map[string]string)
	}
	w.versions[url][name] = version
}

func (w *roamer) remove(url, name string) {
	delete(w.resources, url+"/"+name)
	delete(w.versions[url], name)
}

// connect opens a stream as a node: delta, with the versions that it has, or the state of the world.
func (w *roamer) connect(n *corev3.Node, delta bool) {
	w.node = n
	ctx, cancel := context.WithCancel(context.Background())
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn)
	var receiver sync.WaitGroup
	w.close = func() { cancel(); receiver.Wait() }
	if delta {
		stream, err := client.DeltaAggregatedResources(ctx)
		require.NoError(w.t, err)
		for _, url := range dumped {
			require.NoError(w.t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{
				Node: n, TypeUrl: url, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: maps.Clone(w.versions[url]),
			}))
			n = nil
		}
		receiver.Go(func() {
			for {
				r, err := stream.Recv()
				if err != nil {
					w.fail(ctx, err)
					return
				}
				w.mu.Lock()
				for _, res := range r.GetResources() {
					w.put(r.GetTypeUrl(), res.GetName(), res.GetVersion(), res.GetResource().GetValue())
				}
				for _, name := range r.GetRemovedResources() {
					w.remove(r.GetTypeUrl(), name)
				}
				w.mu.Unlock()
				if stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}) != nil {
					return
				}
			}
		})
		return
	}
	stream, err := client.StreamAggregatedResources(ctx)
	require.NoError(w.t, err)
	for _, url := range dumped {
		require.NoError(w.t, stream.Send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: url}))
		n = nil
	}
	receiver.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				w.fail(ctx, err)
				return
			}
			w.mu.Lock()
			for name := range maps.Clone(w.versions[r.GetTypeUrl()]) {
				w.remove(r.GetTypeUrl(), name)
			}
			for _, res := range r.GetResources() {
				name := nameIn(w.t, res.GetTypeUrl(), res.GetValue())
				w.put(r.GetTypeUrl(), name, "", res.GetValue())
			}
			w.mu.Unlock()
			if stream.Send(&discoveryv3.DiscoveryRequest{
				TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), VersionInfo: r.GetVersionInfo(),
			}) != nil {
				return
			}
		}
	})
}

func (w *roamer) fail(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() == nil {
		w.failed = err
	}
}

func (w *roamer) matches(want map[string][]byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.EqualFunc(want, w.resources, bytes.Equal)
}

// Clients that reconnect as other nodes while the mesh changes, also simultaneously, end up with the resources of a
// fresh catalog.
func TestRoamingClients(t *testing.T) {
	t.Parallel()
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("ENVOY_MODEL_SEEDS"), "1"), 10, 64)
	require.NoError(t, err)
	for seed := range seeds {
		kinds := []resource.Kind{
			resource.ServiceEntry, resource.ServiceEntry, resource.WorkloadEntry, resource.DestinationRule, resource.DestinationRule,
			resource.AuthorizationPolicy,
		}
		if seed%2 == 1 {
			kinds = append(kinds, resource.PeerAuthentication, resource.Sidecar, resource.EnvoyFilter, resource.RequestAuthentication,
				resource.MeshConfig, resource.Telemetry, resource.WasmPlugin)
		}
		mesh := envoytest.New(seed, kinds...)
		random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test's
		debounce := xds.Debounce{Quiet: time.Duration(seed%3) * 2 * time.Millisecond, Max: 10 * time.Millisecond}
		served := serveBy(t, xds.Options{AckTimeout: 100 * time.Millisecond}, Options{Debounce: debounce})
		conn, err := grpc.NewClient(served.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		var roamers []*roamer
		for range 10 {
			w := &roamer{t: t, conn: conn, resources: make(map[string][]byte), versions: make(map[string]map[string]string)}
			w.connect(randomNode(random), random.IntN(3) > 0)
			roamers = append(roamers, w)
		}
		var revision memstore.Revision
		passing := services(t, 150, "10.0.0.1")
		present := false
		for step := range 90 {
			switch random.IntN(8) {
			case 0:
				if present = !present; present {
					mesh.Table.Apply(passing, nil)
				} else {
					var keys []resource.Key
					for _, p := range passing {
						keys = append(keys, p.Key())
					}
					mesh.Table.Apply(nil, keys)
				}
			case 1, 2, 3:
				w := roamers[random.IntN(len(roamers))]
				w.close()
				delta := random.IntN(3) > 0
				if !delta || emptyVersion(w) {
					w.resources, w.versions = make(map[string][]byte), make(map[string]map[string]string)
				}
				w.connect(randomNode(random), delta)
			default:
				mesh.Change()
			}
			snap := served.follow(&mesh.Table, revision)
			revision = snap.Revision()
			if random.IntN(3) == 0 {
				time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
			}
			if step%15 != 14 {
				continue
			}
			fresh := New(&mesh.Table, Options{Log: slog.New(slog.DiscardHandler)})
			fresh.reset(snap, true)
			for i, w := range roamers {
				want := bodiesFor(t, fresh, w.node)
				label := fmt.Sprintf("seed %d, step %d, client %d: %v", seed, step, i, w.node)
				ok := assert.Eventually(t, func() bool { return w.matches(want) }, 4*time.Minute, 5*time.Millisecond, label)
				w.mu.Lock()
				if !ok {
					require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(w.resources)))
				}
				require.NoError(t, w.failed, label)
				w.mu.Unlock()
			}
		}
		for _, w := range roamers {
			w.close()
		}
		_ = conn.Close()
		served.eventually(func() bool {
			served.catalog.mu.RLock()
			defer served.catalog.mu.RUnlock()
			for followed := range served.catalog.following {
				if followed.clients.Load() > 0 || len(followed.workloadViews) > 0 {
					return false
				}
			}
			return true
		}, "no users and views are left")
		for followed := range served.catalog.following {
			served.catalog.dropScope(followed)
		}
		requireNoTranslations(t, served.catalog)
	}
}

// nameIn returns the name of an encoded resource.
func nameIn(t *testing.T, url string, body []byte) string {
	message, err := (&anypb.Any{TypeUrl: url, Value: body}).UnmarshalNew()
	require.NoError(t, err)
	if e, ok := message.(interface{ GetClusterName() string }); ok {
		return e.GetClusterName()
	}
	return message.(interface{ GetName() string }).GetName()
}

// emptyVersion reports whether the client has resources of a state-of-the-world stream, without versions.
func emptyVersion(w *roamer) bool {
	for _, versions := range w.versions {
		for _, v := range versions {
			if v == "" {
				return true
			}
		}
	}
	return false
}
