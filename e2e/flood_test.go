package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
	"tributary/sources/consul/consultest"
	"tributary/sources/kube/kubetest"
)

var update = flag.Bool("update", false, "write the table of docs/limits.md")

const (
	floodsPage   = "../docs/limits.md"
	floodsHeader = "| flood | p50 | p99 | p50 of the control | p99 of the control | peak memory in MB |\n"
	// floodMost is the limit of docs/limits.md for the growth of memory, in MiB.
	floodMost = 1024
	floodFor  = 8 * time.Second
	// slowest is how long an honest client may wait on a busy machine.
	slowest = 30 * time.Second
)

// flood is an attack: the documents of a file, or a server that a configuration source reads.
type flood struct {
	name      string
	documents func() string
	source    func(t *testing.T) string // an entry of configSources
	nightly   bool
}

var floods = []flood{
	{name: "Kubernetes: lists of 13 kinds, compressed", source: kubeLists},
	{name: "Kubernetes: pages without end", source: kubePages, nightly: true},
	{name: "Kubernetes: events without end", source: kubeEvents, nightly: true},
	{name: "Consul: 22 services of 0.1 MB, compressed", source: consulBombs, nightly: true},
	{name: "Eureka: an answer of 0.3 MB, compressed", source: eurekaBomb, nightly: true},
	{name: "xDS: messages of 0.3 MB, compressed", source: xdsBomb, nightly: true},
	{name: "VirtualService, 2,000 hosts × 500 routes", documents: func() string { return floodRoutes(1, 2000, 500) }, nightly: true},
	{name: "VirtualService, 500 hosts × 200 routes", documents: func() string { return floodRoutes(1, 500, 200) }, nightly: true},
	{name: "10 of these", documents: func() string { return floodRoutes(10, 500, 200) }, nightly: true},
	{name: "ServiceEntry, 500 hosts × 100 ports", documents: func() string { return floodPorts(1, 500, 100) }, nightly: true},
	{
		name: "10 ServiceEntries, 300 hosts × 100 ports", documents: func() string { return floodPorts(10, 300, 100) },
		nightly: true,
	},
	{name: "EnvoyFilter, 1,000 patches, one left out", documents: floodPatches},
	{name: "HTTPRoute, 2,000 hostnames × 500 rules", documents: func() string { return floodHTTPRoute(2000, 500) }, nightly: true},
	{
		name:      "ServiceEntry, 80 hosts × 80 ports, 2,000 WorkloadEntries",
		documents: func() string { return floodWorkloads(80, 80, 2000) }, nightly: true,
	},
}

// TestFloods floods tributary from one source. The test measures how long the changes of another source take to an
// Envoy, beside a tributary that is not flooded. Each change must arrive, and the memory stays below floodMost. The
// flag -update writes the table of the page.
func TestFloods(t *testing.T) {
	var table strings.Builder
	table.WriteString(floodsHeader + "| --- | --- | --- | --- | --- | --- |\n")
	for _, f := range floods {
		t.Run(f.name, func(t *testing.T) {
			if f.nightly && !isNightly {
				t.Skip("E2E_NIGHTLY=1 runs it")
			}
			control, attacked := startFlooded(t), startFlooded(t)
			measure := func(d time.Duration) (arrived bool) {
				for end := time.Now().Add(d); time.Now().Before(end); {
					if !control.change(t) || !attacked.change(t) {
						return false
					}
				}
				return true
			}
			require.True(t, measure(3*time.Second))
			before, quiet, calm := attacked.Usage(t).Peak, attacked.take(), control.take()
			attacked.attack(t, f)
			arrived := measure(floodFor)
			loud, controlLags, peak := attacked.take(), control.take(), attacked.Usage(t).Peak
			row := fmt.Sprintf("| %s | %s | %s | %s | %s | %d → %d |\n", f.name, shift(quiet, loud, 50), shift(quiet, loud, 99),
				shift(calm, controlLags, 50), shift(calm, controlLags, 99), before>>20, peak>>20)
			t.Log(row)
			table.WriteString(row)
			assert.True(t, arrived, "a change did not arrive in %s", slowest)
			assert.Less(t, (peak-before)>>20, floodMost)
		})
	}
	if !*update || t.Failed() {
		return
	}
	require.NotEmpty(t, os.Getenv("E2E_NIGHTLY"), "-update needs all floods")
	page, err := os.ReadFile(floodsPage)
	require.NoError(t, err)
	before, after, exists := strings.Cut(string(page), floodsHeader)
	require.True(t, exists)
	_, after, _ = strings.Cut(after, "\n\n")
	require.NoError(t, os.WriteFile(floodsPage, []byte(before+table.String()+"\n"+after), 0o600))
}

func shift(quiet, loud []time.Duration, percent int) string {
	percentile := func(lags []time.Duration) int64 {
		slices.Sort(lags)
		return lags[min(len(lags)-1, len(lags)*percent/100)].Milliseconds()
	}
	return fmt.Sprintf("%d → %d", percentile(quiet), percentile(loud))
}

// flooded is a tributary with an honest source, and an Envoy that reads it.
type flooded struct {
	*fixture.Tributary
	rules, evil string
	client      *fixture.DeltaStream
	port        int
	lags        []time.Duration
}

func startFlooded(t *testing.T) *flooded {
	t.Helper()
	f := &flooded{rules: t.TempDir(), evil: t.TempDir(), port: 1000}
	write(t, f.rules, "honest.yaml", serviceEntry("honest", f.port))
	f.Tributary = fixture.StartTributaryWith(t, f.configuration(""))
	f.AwaitReady(t)
	f.client = fixture.OpenDelta(t, f.XDS, "sidecar~10.9.8.20~caller.clients~clients.svc.cluster.local", resourcev3.ClusterType, hugeMessages)
	require.True(t, f.change(t))
	f.take()
	return f
}

var hugeMessages = grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30))

func (f *flooded) configuration(source string) string {
	return fmt.Sprintf("configSources:\n- {name: rules, address: %q}\n- {name: files, address: %q, derive: {}}\n%s",
		"fs://"+f.rules, "fs://"+f.evil, source)
}

// change changes a file, and waits until the Envoy has the cluster.
func (f *flooded) change(t *testing.T) (arrived bool) {
	t.Helper()
	f.port++
	next := testutil.WriteFile(t, f.rules, ".next", serviceEntry("honest", f.port))
	start := time.Now()
	require.NoError(t, os.Rename(next, filepath.Join(f.rules, "honest.yaml")))
	want := fmt.Sprintf("outbound|%d||honest.mesh.internal", f.port)
	defer func() {
		f.lags = append(f.lags, time.Since(start))
		time.Sleep(20 * time.Millisecond) // a rate
	}()
	for {
		response := f.client.Await(time.Until(start.Add(slowest)))
		if response == nil {
			return false
		}
		if slices.ContainsFunc(response.GetResources(), func(r *discoveryv3.Resource) bool { return r.GetName() == want }) {
			return true
		}
	}
}

func (f *flooded) take() []time.Duration {
	lags := f.lags
	f.lags = nil
	return lags
}

func (f *flooded) attack(t *testing.T, attack flood) {
	t.Helper()
	if attack.source != nil {
		require.NoError(t, os.WriteFile(f.Config, []byte(f.configuration(attack.source(t))), 0o600))
		f.Signal(t, syscall.SIGHUP)
		return
	}
	f.follow(t)
	write(t, f.evil, "evil.yaml", attack.documents())
}

// follow reads and accepts all that an Envoy of the attacker's namespace is sent.
func (f *flooded) follow(t *testing.T) {
	t.Helper()
	conn, err := grpc.NewClient(f.XDS, hugeMessages, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	require.NoError(t, err)
	f.followAs(t, stream, &corev3.Node{Id: "sidecar~10.9.8.21~x.evil~evil.svc.cluster.local"}, "80", "8000")
	gateway, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	require.NoError(t, err)
	metadata, err := structpb.NewStruct(map[string]any{"LABELS": map[string]any{"istio.io/gateway-name": "g"}})
	require.NoError(t, err)
	f.followAs(t, gateway, &corev3.Node{Id: "router~10.9.8.22~y.evil~evil.svc.cluster.local", Metadata: metadata}, "http.80")
}

func (f *flooded) followAs(
	t *testing.T, stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, node *corev3.Node, routes ...string,
) {
	t.Helper()
	names := map[string][]string{resourcev3.ClusterType: nil, resourcev3.ListenerType: nil, resourcev3.RouteType: routes}
	for kind, wanted := range names {
		require.NoError(t, stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: kind, ResourceNames: wanted}))
	}
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			_ = stream.Send(&discoveryv3.DiscoveryRequest{
				TypeUrl: response.GetTypeUrl(), ResourceNames: names[response.GetTypeUrl()], VersionInfo: response.GetVersionInfo(),
				ResponseNonce: response.GetNonce(),
			})
		}
	}()
}

func floodRoutes(objects, hosts, routes int) string {
	var text strings.Builder
	text.WriteString(serviceEntry("evil", 80))
	for o := range objects {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n"+
			"metadata: {name: v%d, namespace: evil}\nspec:\n  hosts:\n", o)
		for i := range hosts {
			fmt.Fprintf(&text, "  - h%d-%d.example.com\n", o, i)
		}
		text.WriteString("  http:\n")
		for i := range routes {
			fmt.Fprintf(&text, "  - {match: [{uri: {prefix: /%d}}], route: [{destination: {host: honest.mesh.internal}}]}\n", i)
		}
	}
	return text.String()
}

func floodPorts(objects, hosts, ports int) string {
	var text strings.Builder
	for o := range objects {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n"+
			"metadata: {name: s%d, namespace: evil}\nspec:\n  hosts:\n", o)
		for i := range hosts {
			fmt.Fprintf(&text, "  - h%d-%d.example.com\n", o, i)
		}
		text.WriteString("  resolution: STATIC\n  endpoints: [{address: 127.0.0.1}]\n  ports:\n")
		for i := range ports {
			fmt.Fprintf(&text, "  - {number: %d, name: http-%d, protocol: HTTP}\n", 8000+i, i)
		}
	}
	return text.String()
}

func floodHTTPRoute(hostnames, rules int) string {
	var text strings.Builder
	text.WriteString("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: evil}\n" +
		"spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}\n---\n" +
		"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r, namespace: evil}\n" +
		"spec:\n  parentRefs: [{name: g}]\n  hostnames:\n")
	for i := range hostnames {
		fmt.Fprintf(&text, "  - h%d.example.com\n", i)
	}
	text.WriteString("  rules:\n")
	for i := range rules {
		fmt.Fprintf(&text, "  - {matches: [{path: {value: /%d}}], backendRefs: [{name: a, port: 80}]}\n", i)
	}
	return text.String()
}

func floodWorkloads(hosts, ports, workloads int) string {
	var text strings.Builder
	text.WriteString(floodPorts(1, hosts, ports))
	documents := strings.Replace(text.String(), "endpoints: [{address: 127.0.0.1}]", "workloadSelector: {labels: {app: a}}", 1)
	text.Reset()
	text.WriteString(documents)
	for i := range workloads {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w%d, namespace: evil}\n"+
			"spec: {address: 10.0.%d.%d, labels: {app: a}}\n", i, i/250, i%250)
	}
	return text.String()
}

func floodPatches() string {
	var text strings.Builder
	text.WriteString("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: f, namespace: evil}\n" +
		"spec:\n  configPatches:\n")
	for i := range 1000 {
		operation, code := "INSERT_FIRST", "-- x"
		if i == 500 {
			operation, code = "ADD", "" // which stands behind the router
		}
		fmt.Fprintf(&text, `  - applyTo: HTTP_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: %s
      value: {name: lua%d, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inline_code: %q}}
`, operation, i, code)
	}
	return text.String()
}

// front passes requests to a server, but for those that a flood answers, compressed.
func front(t *testing.T, honest string, applies func(*http.Request) bool, answer http.HandlerFunc) string {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: honest})
	proxy.FlushInterval = -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !applies(r) {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		answer(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://")
}

// zipped returns a text, compressed: gzip has several members.
func zipped(text string, times int) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range times {
		_, _ = io.WriteString(w, text)
	}
	_ = w.Close()
	return packed.Bytes()
}

func floodedKube(t *testing.T, applies func(*http.Request) bool, answer http.HandlerFunc) string {
	t.Helper()
	return fmt.Sprintf("- {name: attack, address: %q, tlsSettings: {mode: DISABLE}}\n",
		"k8s://"+front(t, kubetest.Start(t, kubetest.Istio()...).Host(), applies, answer))
}

func isWatch(r *http.Request) bool { return r.URL.Query().Has("watch") }

func isList(r *http.Request) bool {
	return !isWatch(r) && strings.Count(r.URL.Path, "/") == 4 && r.Method == http.MethodGet
}

func kubeLists(t *testing.T) string {
	start, packed := zipped(`{"kind": "List", "items": [`, 1), zipped(strings.Repeat("{},", 10_000), 6_000)
	return floodedKube(t, isList, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(append(slices.Clone(start), packed...))
	})
}

func floodObject(number int64, size int) string {
	return fmt.Sprintf(`{"metadata": {"namespace": "evil", "name": "o%d", "resourceVersion": "%d"}, `+
		`"spec": {"hosts": ["o%d.example.com"], "resolution": "DNS", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], `+
		`"subjectAltNames": ["%s"]}}`, number, 1000+number, number, strings.Repeat("x", size))
}

func kubePages(t *testing.T) string {
	var count atomic.Int64
	return floodedKube(t, isList, func(w http.ResponseWriter, _ *http.Request) {
		items := make([]string, 20)
		for i := range items {
			items[i] = floodObject(count.Add(1), 50_000)
		}
		_, _ = w.Write(zipped(`{"kind": "List", "metadata": {"resourceVersion": "100000000", "continue": "more"}, "items": [`+
			strings.Join(items, ",")+"]}", 1))
	})
}

func kubeEvents(t *testing.T) string {
	var count atomic.Int64
	return floodedKube(t, isWatch, func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			var events strings.Builder
			for range 20 {
				events.WriteString(`{"type": "ADDED", "object": ` + floodObject(count.Add(1), 10_000) + "}\n")
			}
			_, err = w.Write(zipped(events.String(), 1))
		}
	})
}

func consulBombs(t *testing.T) string {
	server := consultest.New(t)
	for i := range 22 {
		server.Put(fmt.Sprintf("s%d", i), consultest.Instance(fmt.Sprintf("s%d", i), "1", "127.0.0.1", 80))
	}
	start, packed := zipped("[", 1), zipped(strings.Repeat("{},", 10_000), 3_000)
	return fmt.Sprintf("- {name: attack, address: %q}\n", "consul://"+front(t, server.Address(), func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/v1/health/service/")
	}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Consul-Index", "5")
		_, _ = w.Write(append(slices.Clone(start), packed...))
	}))
}

func eurekaBomb(t *testing.T) string {
	start, packed := zipped(`{"applications": {"application": [`, 1), zipped(strings.Repeat("{},", 10_000), 9_000)
	return fmt.Sprintf("- {name: attack, address: %q}\n", "eureka://"+front(t, "", func(*http.Request) bool { return true },
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(append(slices.Clone(start), packed...)) })+"/eureka")
}

// xdsBomb is a server that answers each message of gRPC with one of 260 MB in fields of two bytes, compressed.
func xdsBomb(t *testing.T) string {
	packed := zipped(strings.Repeat("\x12\x00", 10_000), 13_000)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Encoding", "gzip")
		for {
			var head [5]byte // whether it is compressed, and the size
			if _, err := io.ReadFull(r.Body, head[:]); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, r.Body, int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
				return
			}
			_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(packed))))
			_, _ = w.Write(packed)
			w.(http.Flusher).Flush()
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return fmt.Sprintf("- {name: attack, address: %q}\n", "xds://"+strings.TrimPrefix(server.URL, "http://"))
}
