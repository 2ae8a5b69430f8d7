package relay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	mcpapi "istio.io/api/mcp/v1alpha1"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/mcp"
	"tributary/server/transport"
	"tributary/server/xds"
	"tributary/sources"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// publication is one group of a source, as it is one after the other.
type publication struct {
	source, group string
	states        [][]*resource.Resource
}

// TestReplicas_SendSameBytes starts two replicas at different times. They get the same changes in different order,
// and one of them restarts in between. At the end, their responses are the same bytes.
func TestReplicas_SendSameBytes(t *testing.T) {
	t.Parallel()
	for seed := range int64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			names := []string{"first", "second", "third"}
			random := rand.New(rand.NewSource(seed)) //nolint:gosec // a history
			merge := random.Intn(2) == 0
			var publications []publication
			for _, source := range names {
				for g := range 3 {
					p := publication{source: source, group: fmt.Sprint("g", g)}
					for range 1 + random.Intn(3) {
						p.states = append(p.states, drawObjects(t, random))
					}
					publications = append(publications, p)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				first := newReplica(t, names, merge)
				first.publish(publications, random, false)
				before := first.answers(t)
				time.Sleep(1000 * time.Hour)
				two := newReplica(t, names, merge)
				two.publish(publications, random, true)
				require.Equal(t, before, two.answers(t))
				require.Equal(t, before, first.answers(t), "it does not change with time")
			})
		})
	}
}

func drawObjects(t *testing.T, random *rand.Rand) (resources []*resource.Resource) {
	for range random.Intn(4) {
		name, metadata := fmt.Sprint("x", random.Intn(6)), ""
		if random.Intn(3) == 0 {
			metadata = fmt.Sprintf(", labels: {app: %s, b: c}", name)
		}
		var created time.Time
		if random.Intn(3) == 0 {
			created = time.Date(2026, 1, 1+random.Intn(4), 0, 0, 0, random.Intn(2), time.UTC)
		}
		kind, spec := "VirtualService", "http: [{name: %s, route: [{destination: {host: %s}}]}]"
		if random.Intn(2) == 0 {
			kind = "ServiceEntry"
			spec = "ports: [{number: 80, name: %s, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.%s}]"
		}
		host := fmt.Sprintf("%c.example", 'a'+rune(random.Intn(2)))
		last := map[string]string{"VirtualService": host, "ServiceEntry": strconv.Itoa(random.Intn(9))}[kind]
		text := fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: {namespace: shop, name: %s%s}\n"+
			"spec: {hosts: [%s], "+spec+"}\n", kind, name, metadata, host, name, last)
		document := resource.Decode("x.yaml", []byte(text), resource.Options{})[0]
		require.NoError(t, document.Errors.Err())
		resources = append(resources, document.Resource.WithOrigin(resource.Origin{}).WithCreated(created))
	}
	return resources
}

// replica is a relay without its real sources, which a test replaces, and without its ports.
type replica struct {
	t       *testing.T
	names   []string
	merge   bool
	dir     *lastgood.Dir
	sinks   map[string]sources.Sink
	address *bufconn.Listener
	stop    func()
}

func newReplica(t *testing.T, names []string, merge bool) *replica {
	dir, err := lastgood.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r := &replica{t: t, names: names, merge: merge, dir: dir}
	r.start()
	t.Cleanup(func() { // within the bubble
		r.stop()
		require.NoError(t, dir.Close())
	})
	return r
}

func (r *replica) start() {
	log := slog.New(slog.DiscardHandler)
	supervisor := sources.NewSupervisor(sources.Options{Log: log})
	r.sinks = make(map[string]sources.Sink)
	var mu sync.Mutex
	var inputs []aggregate.Source
	var specs []sources.Spec
	for i, name := range r.names {
		table := new(memstore.Table)
		specs = append(specs, sources.Spec{
			Name: name, Table: table, Guard: guard.Settings{Off: true}, LastGood: r.dir.Source(name),
			Source: runs(func(ctx context.Context, sink sources.Sink) error {
				mu.Lock()
				r.sinks[name] = sink
				mu.Unlock()
				<-ctx.Done()
				return ctx.Err()
			}),
		})
		source := aggregate.Source{Name: name, Reader: table}
		if r.merge && i > 0 {
			source.Merge = &aggregate.Merge{}
		}
		inputs = append(inputs, source)
	}
	require.NoError(r.t, supervisor.Reconfigure(specs))
	view := aggregate.New(inputs...)
	hops := mcp.NewHops("one of several")
	catalog := mcp.New(view, mcp.Options{Hops: hops, Log: log})
	engine := xds.NewServer(catalog, xds.Options{Identifier: identifier("test"), Namespace: "tributary", Log: log})
	server := newGRPC(engine, transport.NewLimiter(engine, transport.Limits{}, slog.Default()), insecure.NewCredentials(),
		access.NewAdmission(access.Policy{}, log, nil), hops, health.NewServer())
	r.address = bufconn.Listen(1 << 20)

	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = supervisor.Run(ctx) })
	parts.Go(func() { _ = view.Run(ctx) })
	parts.Go(func() { _ = catalog.Run(ctx) })
	parts.Go(func() { _ = server.Serve(r.address) })
	r.stop = func() {
		server.Stop()
		engine.Close()
		cancel()
		parts.Wait()
	}
	synctest.Wait()
}

// publish publishes the states of the sources, hours apart: those of a group in order, groups in any order. If restarts
// is set, the replica restarts from its stored state after half of them.
func (r *replica) publish(publications []publication, random *rand.Rand, restarts bool) {
	var order []int
	for i, p := range publications {
		for range p.states {
			order = append(order, i)
		}
	}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	published := make([]int, len(publications))
	say := func(i int) {
		p := publications[i]
		_ = r.sinks[p.source].ReplaceAll([]sources.Content{{Group: p.group, Resources: slices.Clone(p.states[published[i]-1])}})
	}
	for n, i := range order {
		published[i]++
		say(i)
		time.Sleep(time.Duration(1+random.Intn(100)) * time.Minute)
		if restarts && n == len(order)/2 {
			r.stop()
			r.start()
			for i, n := range published {
				if n > 0 {
					say(i)
				}
			}
		}
	}
	for _, sink := range r.sinks {
		sink.Synced()
	}
	synctest.Wait()
}

// answers are those to the first requests of clients of both variants, without the nonces.
func (r *replica) answers(t *testing.T) (responses [][]byte) {
	conn, err := grpc.NewClient("passthrough:///replica", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.address.DialContext(ctx) }))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	node := &corev3.Node{Id: "istiod"}
	take := func(m proto.Message) {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		require.NoError(t, err)
		responses = append(responses, b)
	}
	for _, url := range []string{
		"networking.istio.io/v1/ServiceEntry", "networking.istio.io/v1alpha3/VirtualService",
		"networking.istio.io/v1/Gateway",
	} {
		sotw, err := ads.StreamAggregatedResources(ctx)
		require.NoError(t, err)
		require.NoError(t, sotw.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url}))
		response, err := sotw.Recv()
		require.NoError(t, err)
		response.Nonce = ""
		take(response)
		require.NoError(t, sotw.CloseSend())
		_, err = sotw.Recv()
		require.ErrorIs(t, err, io.EOF)

		delta, err := ads.DeltaAggregatedResources(ctx)
		require.NoError(t, err)
		require.NoError(t, delta.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url}))
		first, err := delta.Recv()
		require.NoError(t, err)
		first.Nonce = ""
		take(first)
	}
	return responses
}

// runs is a source made of a function.
type runs func(ctx context.Context, sink sources.Sink) error

func (r runs) Run(ctx context.Context, sink sources.Sink) error { return r(ctx, sink) }

// TestTiers_PassRanks has a tributary read from two others. Its clients see its sources in their order, and within each the
// order that this source has. The own time of a ServiceEntry passes in the nanoseconds of its rank.
func TestTiers_PassRanks(t *testing.T) {
	t.Parallel()
	dated := strings.Replace(entry("shop", "dated", 80), "{name", "{creationTimestamp: '2026-01-02T03:04:05Z', name", 1)
	lower := func(first, second string) *rig {
		dir := t.TempDir()
		write(t, dir+"/a/x.yaml", entry("shop", first, 80))
		write(t, dir+"/b/x.yaml", entry("shop", second, 80)+dated)
		configured(t, dir, "name: a, address: 'fs://./a'", "name: b, address: 'fs://./b'")
		r := startReady(t, dir)
		return r
	}
	first, two := lower("sz", "sy"), lower("sx", "sw")
	dir := t.TempDir()
	fill(t, dir, "own/x.yaml: shop/sv")
	configured(t, dir, "name: one, address: 'xds://"+first.XDS().String()+"'", "name: own, address: 'fs://./own'",
		"name: two, address: 'xds://"+two.XDS().String()+"'")
	upper := startReady(t, dir)
	edge := t.TempDir()
	configured(t, edge, "name: upper, address: 'xds://"+upper.XDS().String()+"'")
	relay := startReady(t, edge)

	created := func(r *rig) map[string]time.Time {
		node := &corev3.Node{Id: "istiod"}
		stream := subscribeTo(t, r.XDS().String(), insecure.NewCredentials(), "", node).stream
		answer, err := stream.Recv()
		require.NoError(t, err)
		times := make(map[string]time.Time)
		for _, a := range answer.GetResources() {
			var m mcpapi.Resource
			require.NoError(t, a.UnmarshalTo(&m))
			times[strings.TrimPrefix(m.GetMetadata().GetName(), "shop/")] = m.GetMetadata().GetCreateTime().AsTime()
		}
		return times
	}
	times := created(upper)
	require.Equal(t, times, created(relay), "a source without objects changes no object")
	since2014 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix() - 1_400_000_000
	require.EqualValues(t, since2014, times["dated"].Nanosecond())
	for i, names := range [][2]string{{"sz", "sy"}, {"sy", "dated"}, {"dated", "sv"}, {"sv", "sx"}, {"sx", "sw"}} {
		require.True(t, times[names[0]].Before(times[names[1]]), "%d: %s", i, times)
	}
}
