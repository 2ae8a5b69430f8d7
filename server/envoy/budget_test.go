package envoy

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

func multiplying(name string, hosts, ports int) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: evil}\n"+
		"spec: {resolution: STATIC, endpoints: [{address: 10.0.0.1}], hosts: %s, ports: %s}\n---\n", name,
		many(hosts, "h#."+name+".example.com"), many(ports, "{number: 8#, name: p#, protocol: HTTP}"))
}

func delegating(name, to string, hosts, routes int) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: evil}\n"+
		"spec: {hosts: %s, http: %s}\n---\n", name, many(hosts, "v#."+name+".example.com"),
		many(routes, "{match: [{headers: {x: {exact: v#}}}], delegate: {name: "+to+"}}"))
}

func delegate(name string, routes int) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: evil}\n"+
		"spec: {http: %s}\n---\n", name,
		many(routes, "{match: [{uri: {prefix: /a#}}], route: [{destination: {host: base.example.com}}]}"))
}

// The routes of a delegate count as often as routes delegate to it, for each host, whichever of the objects comes last.
func TestBudget_CountsDelegates(t *testing.T) {
	const hosts, roots, routes = 100, 60, 60
	root := resource.Key{Kind: resource.VirtualService, Namespace: "evil", Name: "root"}
	texts := []string{delegating("root", "d", hosts, roots), delegate("d", routes)}
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		var table memstore.Table
		catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
		for _, i := range order {
			objects := decoded(t, texts[i])
			table.Apply(objects, nil)
			catalog.reset(table.Snapshot(), true)
		}
		require.Equal(t, []resource.Key{root}, slices.Collect(maps.Keys(catalog.budget.refused)))
		require.GreaterOrEqual(t, catalog.budget.refused[root], int64(hosts*roots*routes)<<11)
		objects := decoded(t, delegate("d", 1))
		table.Apply(objects, nil)
		catalog.reset(table.Snapshot(), true)
		require.Empty(t, catalog.budget.refused, "a smaller delegate fits")
		require.True(t, catalog.mesh.Contains(root))
	}
}

// Which objects of a namespace are refused depends on the objects alone. The mesh has all others, and of the refused
// ones earlier versions at most, for as much memory as the limit.
func TestBudget_DependsOnObjectsAlone(t *testing.T) {
	const limit = 1 << 20
	options := Options{ProductBytes: limit, Log: slog.New(slog.DiscardHandler)}
	refusals, accepted := 0, 0
	for history := range uint64(40) {
		random := rand.New(rand.NewPCG(history, 1)) //nolint:gosec // a test
		var table memstore.Table
		catalog := New(&table, options)
		catalog.reset(table.Snapshot(), true)
		for range 15 {
			key := resource.Key{Kind: resource.ServiceEntry, Namespace: "evil", Name: fmt.Sprintf("o%d", random.IntN(6))}
			text := multiplying(key.Name, 1+random.IntN(30), 1+random.IntN(6))
			switch random.IntN(6) {
			case 0:
				key = resource.Key{Kind: resource.VirtualService, Namespace: "evil", Name: fmt.Sprintf("d%d", random.IntN(2))}
				text = delegate(key.Name, 1+random.IntN(20))
			case 1:
				key = resource.Key{Kind: resource.VirtualService, Namespace: "evil", Name: fmt.Sprintf("r%d", random.IntN(2))}
				text = delegating(key.Name, fmt.Sprintf("d%d", random.IntN(3)), 1+random.IntN(8), 1+random.IntN(8))
			}
			if random.IntN(4) == 0 {
				table.Apply(nil, []resource.Key{key})
			} else {
				table.Apply(decoded(t, text), nil)
			}
			catalog.update([]resource.Key{key}, table.Snapshot(), random.IntN(2) == 0, true)
			fresh := New(&table, options)
			fresh.reset(table.Snapshot(), true)
			require.Equal(t, fresh.budget.refused, catalog.budget.refused)
			sum := int64(0)
			for _, size := range catalog.budget.lastGood {
				sum += size
			}
			require.LessOrEqual(t, sum, int64(limit))
			for key := range catalog.mesh.Entries {
				require.NotNil(t, table.Snapshot().Get(key), "%s is gone", key)
			}
			for r := range table.Snapshot().All() {
				_, isKept := catalog.budget.lastGood[r.Key()]
				_, isRefused := catalog.budget.refused[r.Key()]
				require.Equal(t, isKept || !isRefused, catalog.mesh.Contains(r.Key()), "%s", r.Key())
				require.Equal(t, isRefused, catalog.budget.why(r.Key()) != "")
			}
			refusals, accepted = refusals+len(catalog.budget.refused), accepted+len(catalog.budget.lastGood)
		}
	}
	require.Greater(t, refusals, 100)
	require.Greater(t, accepted, 20)
	require.Less(t, accepted, refusals)
}

// The largest object that does not fit is refused, whatever its name, and the namespaces of others are not concerned.
// An object that is refused after a change is served as it was.
func TestBudget_KeepsLastVersion(t *testing.T) {
	var table memstore.Table
	put := func(text string) { table.Apply(decoded(t, text), nil) }
	put(multiplying("a", 80, 3) + multiplying("b", 20, 3) + productBase)
	c := New(&table, Options{ProductBytes: 3 << 20, Log: slog.New(slog.DiscardHandler)})
	update := func() []string {
		c.reset(table.Snapshot(), true)
		return slices.Sorted(func(yield func(string) bool) {
			for host := range maps.Keys(c.mesh.Hosts) {
				if slices.Contains([]string{"h0.a.example.com", "h25.b.example.com", "h0.b.example.com", "base.example.com"}, host) && !yield(host) {
					return
				}
			}
		})
	}
	require.Equal(t, []string{"base.example.com", "h0.b.example.com"}, update())
	require.Contains(t, c.budget.why(resource.Key{Kind: resource.ServiceEntry, Namespace: "evil", Name: "a"}),
		"multiply into 3 MB of memory, and the largest are refused: split this one, or raise limits.productBytes, which is 3145728; "+
			"until then, it is not served to Envoys")
	put(multiplying("b", 200, 3))
	require.Equal(t, []string{"base.example.com", "h0.a.example.com", "h0.b.example.com"}, update(), "a is the smaller one, b keeps its 20")
	c.newScope(model.ProfileOf(nodes[0]))
	findings := c.WithoutEffect(table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "evil", Name: "b"}))
	require.Contains(t, fmt.Sprint(findings), "Envoys keep its last version")
	table.Apply(nil, []resource.Key{{Kind: resource.ServiceEntry, Namespace: "evil", Name: "a"}})
	put(multiplying("b", 30, 3))
	require.Equal(t, []string{"base.example.com", "h0.b.example.com", "h25.b.example.com"}, update())
}

// The catalog refuses an object if its products grow with other objects, and the mesh has no version of it, because
// that version would grow as well.
func TestBudget_OtherObjectsGrow(t *testing.T) {
	workloads := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w%d, namespace: evil}\n"+
				"spec: {address: 10.0.0.%d, labels: {app: a}}\n---\n", i, i)
		}
		return text
	}
	selecting := strings.Replace(multiplying("root", 20, 20), "endpoints: [{address: 10.0.0.1}]", "workloadSelector: {labels: {app: a}}", 1)
	for name, tt := range map[string]struct {
		root         string
		kind         resource.Kind
		small, large string
	}{
		"workloads":        {selecting, resource.ServiceEntry, workloads(1), workloads(200)},
		"workloads, first": {selecting, resource.ServiceEntry, "", workloads(200)},
		"delegate": {
			delegating("root", "d", 10, 10), resource.VirtualService, delegate("d", 1), delegate("d", 200),
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := resource.Key{Kind: tt.kind, Namespace: "evil", Name: "root"}
			for _, texts := range [][]string{{tt.root + tt.small, tt.large}, {tt.large + tt.root}, {tt.large, tt.root}} {
				var table memstore.Table
				catalog := New(&table, Options{ProductBytes: 32 << 20, Log: slog.New(slog.DiscardHandler)})
				for _, text := range texts {
					objects := decoded(t, text)
					table.Apply(objects, nil)
					catalog.reset(table.Snapshot(), true)
				}
				require.NotEmpty(t, catalog.budget.why(key))
				require.False(t, catalog.mesh.Contains(key))
				var deleted []resource.Key
				for r := range table.Snapshot().All() {
					if r.Key() != key {
						deleted = append(deleted, r.Key())
					}
				}
				table.Apply(nil, deleted)
				catalog.reset(table.Snapshot(), true)
				require.Empty(t, catalog.budget.refused)
				require.True(t, catalog.mesh.Contains(key))
			}
		})
	}
}

// A client keeps the resources that its new profile has, also when a change admits an object that the limit of
// products refused before.
func TestBudget_AdmittedObjectDividesClientsBeforeChange(t *testing.T) {
	exported := func(to string, hosts, ports int) string {
		return strings.Replace(multiplying("db", hosts, ports), "spec: {", "spec: {exportTo: "+to+", ", 1)
	}
	large := decoded(t, exported("[named]", 12, 6))[0]
	limit := resource.Multiplied(large, func(resource.Key) *resource.Resource { return nil })
	steps := newSteps(Options{ProductBytes: limit}, decoded(t, exported(`["*"]`, 1, 1)+multiplying("big", 10, 6))...)
	key := resource.Key{Kind: resource.ServiceEntry, Namespace: "evil", Name: "db"}
	require.Empty(t, steps.c.budget.refused)
	n := node("named", "NONE", "")
	clusters := func() *xds.Collection {
		collection, release, err := steps.c.Collection(t.Context(), n, xds.ClusterURL)
		require.NoError(t, err)
		t.Cleanup(release)
		return collection
	}
	name := "outbound|80||h0.db.example.com"
	steps.change(t, exported("[named]", 12, 6))
	require.Contains(t, steps.c.budget.refused, key)
	held := clusters()
	require.NotNil(t, held.Get(name), "the last good version")
	steps.c.SetReview(func() {
		require.NotNil(t, held.Get(name), "a review comes after the client lost a cluster that its new profile has")
		held = clusters()
	})
	steps.apply(nil, resource.Key{Kind: resource.ServiceEntry, Namespace: "evil", Name: "big"})
	require.Empty(t, steps.c.budget.refused)
	require.NotNil(t, held.Get(name))
}
