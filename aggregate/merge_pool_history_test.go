package aggregate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"tributary/aggregate/conflicts"
	"tributary/memstore"
	"tributary/resource"
)

// registry is a source of the model: its entries, by key.
type registry struct {
	Source
	store *memstore.Store
	lists map[resource.Key]listed
}

// listed is a ServiceEntry in the model.
type listed struct {
	host      string
	ports     []uint32
	addresses []string
}

func (l listed) resource(t require.TestingT, key resource.Key) *resource.Resource {
	se := &networking.ServiceEntry{Hosts: []string{l.host}, Resolution: networking.ServiceEntry_STATIC}
	for _, port := range l.ports {
		se.Ports = append(se.Ports, &networking.ServicePort{Number: port, Name: fmt.Sprint("p", port), Protocol: "HTTP"})
	}
	for _, address := range l.addresses {
		se.Endpoints = append(se.Endpoints, workload(address))
	}
	r, err := resource.New(resource.Meta{Key: key}, se)
	require.NoError(t, err)
	return r
}

// saying is a state's entry of a key: ports, and addresses with localities.
func saying(t require.TestingT, r *resource.Resource) string {
	spec, err := r.Spec()
	require.NoError(t, err)
	serviceEntry := spec.(*networking.ServiceEntry)
	var ports []uint32
	for _, p := range serviceEntry.Ports {
		ports = append(ports, p.Number)
	}
	var endpoints []string
	for _, e := range serviceEntry.Endpoints {
		endpoints = append(endpoints, e.Address+"@"+e.Locality)
	}
	slices.Sort(endpoints)
	return fmt.Sprint(serviceEntry.Hosts, ports, endpoints)
}

func statesOf(t require.TestingT, s memstore.Snapshot) map[resource.Key]string {
	m := make(map[resource.Key]string)
	for r := range s.All() {
		m[r.Key()] = saying(t, r)
	}
	return m
}

// group is a merged entry in the model.
type group struct {
	listed
	sources map[string][]*registry // from address to the sources that list it, in order
}

// poolModel merges all entries from scratch. It returns the served entries, and the number of refused entries.
func poolModel(registries []*registry) (served map[resource.Key]string, refused int) {
	ordered := slices.Clone(registries)
	slices.SortStableFunc(ordered, func(a, b *registry) int { return b.Precedence - a.Precedence })
	served = make(map[resource.Key]string)
	merged := make(map[resource.Key]string)
	hosts := make(map[string][]*group)
	for i := range 2 * len(ordered) { // once for entries with addresses, and once for the others
		s, idle := ordered[i%len(ordered)], i >= len(ordered)
		for _, key := range slices.SortedFunc(maps.Keys(s.lists), resource.Key.Compare) {
			listed := s.lists[key]
			if s.Merge == nil || idle != (len(listed.addresses) == 0) {
				continue
			}
			place := key.Namespace + "/" + listed.host
			i := slices.IndexFunc(hosts[place], func(g *group) bool {
				return slices.ContainsFunc(listed.ports, func(p uint32) bool { return slices.Contains(g.ports, p) })
			})
			switch {
			case i < 0:
				g := &group{listed: listed, sources: make(map[string][]*registry)}
				hosts[place] = append(hosts[place], g)
				g.add(s, listed)
			case slices.Equal(hosts[place][i].ports, listed.ports):
				hosts[place][i].add(s, listed)
			default:
				refused++
			}
		}
	}
	for place, groups := range hosts {
		namespace, host, _ := strings.Cut(place, "/")
		for _, g := range groups {
			merged[resource.Key{Kind: resource.ServiceEntry, Namespace: namespace, Name: fmt.Sprintf("%s-%d", host, g.ports[0])}] = g.summary()
		}
	}
	pooled := false
	for _, s := range ordered { // the first that has a key wins
		if s.Merge == nil {
			for key, listed := range s.lists {
				if _, ok := served[key]; !ok {
					var addresses []string
					for _, a := range listed.addresses {
						addresses = append(addresses, a+"@")
					}
					slices.Sort(addresses)
					served[key] = fmt.Sprint([]string{listed.host}, listed.ports, addresses)
				}
			}
		} else if !pooled {
			pooled = true
			for key, text := range merged {
				if _, ok := served[key]; !ok {
					served[key] = text
				}
			}
		}
	}
	return served, refused
}

func (g *group) add(s *registry, l listed) {
	for _, a := range l.addresses {
		g.sources[a] = append(g.sources[a], s)
	}
}

func (g *group) summary() string {
	first := func(candidates []*registry) *registry {
		return slices.MinFunc(candidates, func(a, b *registry) int { return cmp.Compare(a.Merge.Priority, b.Merge.Priority) })
	}
	least := 99
	for _, candidates := range g.sources {
		least = min(least, first(candidates).Merge.Priority)
	}
	var endpoints []string
	for a, candidates := range g.sources {
		if s := first(candidates); s.Merge.Priority == least {
			endpoints = append(endpoints, a+"@"+s.Merge.Locality)
		}
	}
	slices.Sort(endpoints)
	return fmt.Sprint([]string{g.host}, g.ports, endpoints)
}

// TestMergedHistories runs random histories over sources, some of them merged, with reloads, and compares the view, its
// changes, conflicts and explanations with the model after each step.
func TestMergedHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, testMergedHistory)
	})
}

func testMergedHistory(t *rapid.T) {
	settings := rapid.SampledFrom([]*Merge{nil, {}, {}, {Locality: "eu/a"}, {Priority: 1}, {Priority: 1, Locality: "us/b"}})
	var registries []*registry
	for i, name := range []string{"p", "q", "r", "s"} {
		store := memstore.New()
		store.MarkSynced()
		registries = append(registries, &registry{
			Source: Source{Name: name, Reader: store, Precedence: i / 3, Merge: settings.Draw(t, "merge")},
			store:  store, lists: make(map[resource.Key]listed),
		})
	}
	keys := rapid.Custom(func(t *rapid.T) resource.Key {
		return resource.Key{
			Kind: resource.ServiceEntry, Namespace: rapid.SampledFrom([]string{"n", "m"}).Draw(t, "namespace"),
			Name: rapid.SampledFrom([]string{"x", "y", "a.example-80"}).Draw(t, "name"),
		}
	})
	lists := rapid.Custom(func(t *rapid.T) listed {
		return listed{
			host:      rapid.SampledFrom([]string{"a.example", "b.example"}).Draw(t, "host"),
			ports:     rapid.SampledFrom([][]uint32{{80}, {80}, {80, 443}, {443}}).Draw(t, "ports"),
			addresses: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}), 0, 3, rapid.ID).Draw(t, "addresses"),
		}
	})
	configured := registries
	sources := func() (sources []Source) {
		for _, s := range configured {
			sources = append(sources, s.Source)
		}
		return sources
	}
	view := New(sources()...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = view.Run(ctx) })
	defer running.Wait()
	defer cancel()
	mirror, revision := make(map[resource.Key]string), memstore.Revision(0)

	t.Repeat(map[string]func(*rapid.T){
		"apply": func(t *rapid.T) {
			s := rapid.SampledFrom(registries).Draw(t, "source")
			var puts []*resource.Resource
			for key, l := range rapid.MapOfN(keys, lists, 0, 3).Draw(t, "puts") {
				s.lists[key] = l
				puts = append(puts, l.resource(t, key))
			}
			s.store.Apply(puts, nil)
		},
		"delete": func(t *rapid.T) {
			s := rapid.SampledFrom(registries).Draw(t, "source")
			deleted := rapid.SliceOfN(keys, 0, 3).Draw(t, "keys")
			for _, key := range deleted {
				delete(s.lists, key)
			}
			s.store.Apply(nil, deleted)
		},
		"reload": func(t *rapid.T) {
			for _, s := range registries {
				s.Merge = settings.Draw(t, "merge")
			}
			configured = rapid.Permutation(registries).Draw(t, "sources")[:rapid.IntRange(0, len(registries)).Draw(t, "number")]
			view.SetSources(sources()...)
		},
		"no pause": func(*rapid.T) {},
		"": func(t *rapid.T) {
			synctest.Wait()
			want, refused := poolModel(configured)
			require.Equal(t, want, statesOf(t, view.Snapshot()))
			changed, now, ok := view.Changes(revision)
			require.True(t, ok, "a history this short is not too old")
			for _, key := range changed {
				delete(mirror, key)
				if r := now.Get(key); r != nil {
					mirror[key] = saying(t, r)
				}
			}
			revision = now.Revision()
			require.Equal(t, want, mirror, "a follower of Changes")
			checkProvenance(t, view, configured, refused)
		},
	})
}

// checkProvenance checks that explained endpoints of merged entries are served, and that the sources list them.
func checkProvenance(t *rapid.T, view *View, configured []*registry, refused int) {
	members := 0
	for r := range view.Snapshot().All() {
		e := view.Explain(r.Key())
		require.NotNil(t, e.Winner)
		require.Equal(t, r.Version(), e.Winner.Version)
		if e.Merged == nil {
			continue
		}
		members += len(e.Merged.Refused)
		require.Equal(t, len(e.Merged.Refused) > 0, slices.ContainsFunc(e.Conflicts, func(c conflicts.Conflict) bool {
			return c.Rule == conflicts.MergeEndpoints
		}))
		var served []string
		for _, endpoint := range e.Merged.Endpoints {
			if !endpoint.Standby {
				served = append(served, endpoint.Address+"@"+endpoint.Locality)
			}
			for _, name := range append([]string{endpoint.Source}, endpoint.Also...) {
				s := configured[slices.IndexFunc(configured, func(s *registry) bool { return s.Name == name })]
				require.True(t, slices.ContainsFunc(e.Merged.Members, func(m Member) bool {
					key := resource.Key{Kind: resource.ServiceEntry, Namespace: r.Key().Namespace, Name: m.Name}
					return m.Source == name && slices.Contains(s.lists[key].addresses, endpoint.Address)
				}), "%s lists %s", name, endpoint.Address)
			}
		}
		slices.Sort(served)
		require.Contains(t, saying(t, r), fmt.Sprint(served))
	}
	for _, s := range view.Sources() {
		require.NotEmpty(t, s.Name, "the pool is no source for people")
	}
	shadowed := len(slices.Collect(view.Shadows())) > 0
	require.True(t, members == refused || shadowed && members < refused, "%d refused, %d explained", refused, members)
}
