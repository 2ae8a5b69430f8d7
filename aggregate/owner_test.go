package aggregate

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// servedHosts returns the served hosts, by name.
func servedHosts(view *View) map[string][]string {
	synctest.Wait()
	m := make(map[string][]string)
	for r := range view.Snapshot().All() {
		m[r.Key().Name] = decoded(r).GetHosts()
	}
	return m
}

// TestHostNames_DoNotCollideWithMultiHostNames has a host that is spelt as the name of an entry with several hosts
// could be.
func TestHostNames_DoNotCollideWithMultiHostNames(t *testing.T) {
	several := []string{"a.example", "b.example"}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte("a.example,b.example"))
	for _, host := range []string{fmt.Sprintf("a.example-%08x", hash.Sum32()), fmt.Sprintf("a.example-80-%08x", hash.Sum32())} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			two := serviceEntry("", 80)
			two.Hosts = several
			store.Apply([]*resource.Resource{
				object(t, resource.ServiceEntry, "n", "two", 0, two), object(t, resource.ServiceEntry, "n", "one", 0, serviceEntry(host, 80)),
			}, nil)
			store.MarkSynced()
			view := start(t, merging("a", store))
			served := servedHosts(view)
			require.Len(t, served, 2)
			require.Equal(t, []string{host}, served[host+"-80"], "the name of a single host is plain")

			remove(store, keyOf("one"))
			for _, hosts := range servedHosts(view) {
				require.Equal(t, several, hosts)
			}
		})
	}
}

// TestServiceName_HasOneOwner has three services that get the same name: two without a host, which lenient sources
// accept, and one of a host. The owner of the name follows from the present services and not from the order of events.
func TestServiceName_HasOneOwner(t *testing.T) {
	name := keyOf("a.example-80")
	named := object(t, resource.ServiceEntry, "n", "x", 0, withEndpoints(serviceEntry("a.example", 80), workload("10.0.0.1")))
	hostless := func(port uint32) *resource.Resource {
		return object(t, resource.ServiceEntry, "n", name.Name, 0,
			&networking.ServiceEntry{Ports: []*networking.ServicePort{{Number: port, Name: "p", Protocol: "HTTP"}}})
	}
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(), memstore.New()
		view := start(t, merging("a", store), merging("b", b))
		steps := map[string]func(){
			"x":  func() { put(store, named) },
			"90": func() { put(store, hostless(90)) },
			"91": func() { put(b, hostless(91)) },
		}
		for _, order := range [][]string{{"x", "90", "91"}, {"91", "90", "x"}, {"90", "x", "91"}} {
			for _, step := range order {
				steps[step]()
				synctest.Wait()
			}
			require.Equal(t, map[string][]string{name.Name: {"a.example"}}, servedHosts(view), "%v", order)
			var refused []string
			for _, r := range view.Refusals() {
				require.Equal(t, name, r.Winner.Resource.Key())
				refused = append(refused, r.Loser.Source+": "+r.Reason)
			}
			require.Equal(t, []string{"a: its name is taken by a.example", "b: its name is taken by a.example"}, refused, "%v", order)
			require.Len(t, view.Competing(), 1)
			require.Len(t, view.Explain(name).Merged.Refused, 2)

			remove(store, named.Key())
			require.Equal(t, map[string][]string{name.Name: nil}, servedHosts(view), "the next one has it")
			require.EqualValues(t, 90, decoded(view.Snapshot().Get(name)).Ports[0].Number)
			require.Len(t, view.Refusals(), 1)
			require.Contains(t, view.Refusals()[0].Reason, "ports differ")

			remove(store, name)
			require.Len(t, servedHosts(view), 1)
			require.EqualValues(t, 91, decoded(view.Snapshot().Get(name)).Ports[0].Number)
			require.Empty(t, view.Refusals())
			remove(b, name)
			require.Empty(t, servedHosts(view))
			require.Empty(t, view.Competing())
		}
		view.pool.mu.Lock()
		defer view.pool.mu.Unlock()
		require.Empty(t, view.pool.claims)
		require.Empty(t, view.pool.groups)
		require.Empty(t, view.pool.hasRefusals)
	})
}

// TestMergeOfManyEntries_Memory counts the bytes that it takes to merge entries of one host, alike or with a port each.
func TestMergeOfManyEntries_Memory(t *testing.T) {
	takes := func(n int, port func(i int) uint32) uint64 {
		var members []*member
		for i := range n {
			se := withEndpoints(serviceEntry("a.example", port(i)), workload(fmt.Sprintf("10.0.%d.%d", i/250, i%250), nil))
			members = append(members, memberOf(t, "a", fmt.Sprintf("x%05d", i), se))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, s := range joinMembers(groupKeyOf(members[0].res), members) {
			s.object()
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for layout, port := range map[string]func(int) uint32{
		"alike": func(int) uint32 { return 80 }, "a port each": func(i int) uint32 { return uint32(i + 1) },
	} {
		const times = 16
		require.Less(t, takes(200*times, port), 2*times*takes(200, port), layout)
	}
}
