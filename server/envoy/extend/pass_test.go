package extend

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/testutil"
	"tributary/server/envoy/model"
)

// patchPool has the patches of testdata/pool.yaml.
func patchPool(t *testing.T) (pool []*model.Patch) {
	t.Helper()
	for _, text := range patchTexts(t, "pool.yaml") {
		pool = append(pool, patchesOf(text)...)
	}
	return pool
}

// patchTexts returns the patches of a file.
func patchTexts(t *testing.T, file string) (texts []string) {
	t.Helper()
	for _, patch := range *fixture(t, new([]json.RawMessage), file) {
		texts = append(texts, string(patch))
	}
	return texts
}

// patchesOf decodes a patch in YAML, including one with an invalid value.
func patchesOf(text string) []*model.Patch {
	t := new(testing.T)
	return extension(t, "- "+text+"\n").Patches
}

var patched = map[string]func(*Patcher) proto.Message{
	"listener": func(p *Patcher) proto.Message {
		l, served := p.Listener(fixture(new(testing.T), &listenerv3.Listener{}, "listener.yaml"))
		if !served {
			return nil
		}
		return l
	},
	"routes": func(p *Patcher) proto.Message {
		return p.Routes(fixture(new(testing.T), &routev3.RouteConfiguration{}, "routes.yaml"))
	},
	"cluster": func(p *Patcher) proto.Message {
		c, served := p.Cluster(read(new(testing.T), &clusterv3.Cluster{}, `{name: "outbound|80||a", type: EDS, connect_timeout: 1s}`))
		if !served {
			return nil
		}
		return c
	},
}

// Checking each patch alone leaves out the same patches as running the patches up to each: those with a result that
// Envoy would refuse.
func TestPatches_LeftOutAsIfEachPrefixWereChecked(t *testing.T) {
	testutil.OneGoroutine(t)
	pool := patchPool(t)
	require.Greater(t, len(pool), 35)
	random := rand.New(rand.NewPCG(3, 5)) //nolint:gosec // of a test
	for round := range 60 {
		var list []*model.Patch
		for i := range 1 + random.IntN(12) {
			p := *pool[random.IntN(len(pool))]
			p.Field = fmt.Sprintf("spec.configPatches[%d]", i)
			list = append(list, &p)
		}
		for name, run := range patched {
			apply := func(list []*model.Patch) (message proto.Message, refused []string) {
				var findings model.Findings
				message = run(New(&model.Extension{Patches: list, MaxProgram: 100}, networking.EnvoyFilter_GATEWAY, &findings))
				for _, f := range findings {
					if f.Why != "" && !f.Effective && !strings.Contains(f.Why, "typed_config") {
						refused = append(refused, f.Field)
					}
				}
				return message, refused
			}
			got, leftOut := apply(list)
			want, wrong := apply(list)
			if len(wrong) > 0 {
				var good []*model.Patch
				wrong = nil
				for _, phases := range [][]phase{{{networking.EnvoyFilter_CLUSTER, changing}}, listenerPhases} {
					for _, patch := range inPhases(list, phases) {
						if name == "cluster" != (patch.ApplyTo == networking.EnvoyFilter_CLUSTER) ||
							name == "routes" && !slices.ContainsFunc(RoutePhases, func(ph phase) bool { return ph.selects(patch) }) {
							continue
						}
						if _, alsoRefused := apply(append(slices.Clone(good), patch)); len(alsoRefused) > 0 {
							wrong = append(wrong, patch.Field)
						} else {
							good = append(good, patch)
						}
					}
				}
				want, _ = apply(good)
			}
			var texts strings.Builder
			for _, p := range list {
				fmt.Fprintln(&texts, p.Field, p.ApplyTo, p.Operation, p.Match, p.Value)
			}
			require.Equal(t, wrong, leftOut, "round %d: %s\n%s", round, name, &texts)
			require.True(t, proto.Equal(want, got), "round %d: %s\n%s\nwant %v\ngot  %v", round, name, &texts, want, got)
		}
	}
}

// The cost of patches is in proportion to their number, whichever of them are left out: each runs a few times.
func TestPatches_LinearCost(t *testing.T) {
	testutil.OneGoroutine(t)
	filterTo := "{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: *lua}}"
	broken := "{applyTo: HTTP_FILTER, patch: {operation: ADD, value: *lua}}"
	route := "{applyTo: HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {match: {prefix: /o}, direct_response: {status: 200}}}}"
	chain := "{applyTo: FILTER_CHAIN, patch: {operation: ADD, value: {filter_chain_match: {server_names: [n%d]}, filters: [*tcp]}}}"
	secured := `{applyTo: NETWORK_FILTER, match: *manager, patch: {operation: MERGE, value: ` +
		`{typed_config: {"@type": *managerType, http_filters: [*rbac]}}}}`
	host := "{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: v%d, domains: [v%d.example.com]}}}"
	header := "{applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {request_headers_to_remove: [h%d]}}}"
	cluster := "{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 2s}}}"
	for name, tt := range map[string]struct{ resource, good, bad string }{
		"HTTP filters":     {"listener", filterTo, broken},
		"filter chains":    {"listener", chain, broken},
		"HTTP managers":    {"listener", secured, broken},
		"removed security": {"listener", filterTo, strings.Replace(broken, "operation: ADD", "operation: REMOVE", 1)},
		"routes":           {"routes", route, "{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: b, domains: [a.example.com]}}}"},
		"virtual hosts":    {"routes", host, "{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: b, domains: [a.example.com]}}}"},
		"headers":          {"routes", header, "{applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {name: other}}}"},
		"clusters":         {"cluster", cluster, "{applyTo: CLUSTER, patch: {operation: MERGE, value: {name: other}}}"},
	} {
		for place, isBad := range map[string]func(i, n int) bool{
			"first": func(i, _ int) bool { return i == 0 },
			"last":  func(i, n int) bool { return i == n-1 },
			"half":  func(i, _ int) bool { return i%2 == 1 },
			"every": func(int, int) bool { return true },
			"none":  func(int, int) bool { return false },
		} {
			t.Run(name+"/"+place, func(t *testing.T) {
				cost := func(n int) (bytes uint64) {
					var list []*model.Patch
					good, bad := patchesOf(strings.ReplaceAll(tt.good, "%d", "0")), patchesOf(tt.bad)
					for i := range n {
						if isBad(i, n) {
							list = append(list, bad...)
						} else if strings.Contains(tt.good, "%d") {
							list = append(list, patchesOf(strings.ReplaceAll(tt.good, "%d", strconv.Itoa(i)))...)
						} else {
							list = append(list, good...)
						}
					}
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					patched[tt.resource](New(&model.Extension{Patches: list}, networking.EnvoyFilter_GATEWAY, new(model.Findings)))
					runtime.ReadMemStats(&after)
					return after.TotalAlloc - before.TotalAlloc
				}
				few, many := cost(50), cost(400)
				require.Less(t, many, 12*few, "%d bytes for 50 patches, %d for 400", few, many)
			})
		}
	}
}

// Every second of HTTP filters is left out.
func BenchmarkPatches(b *testing.B) {
	good := patchesOf("{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: *lua}}")
	bad := patchesOf("{applyTo: HTTP_FILTER, patch: {operation: ADD, value: *lua}}")
	for _, n := range []int{200, 1000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := &model.Extension{Patches: slices.Repeat(slices.Concat(good, bad), n/2)}
			for b.Loop() {
				patched["listener"](New(e, networking.EnvoyFilter_GATEWAY, new(model.Findings)))
			}
		})
	}
}
