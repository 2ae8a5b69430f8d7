package conflicts

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/memstore"
	"tributary/resource"
)

func selector(version string) *typev1beta1.WorkloadSelector {
	return &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"version": version}}
}

// TestIndexFollows compares the index, which follows changes, with a new one of the same state.
func TestIndexFollows(t *testing.T) {
	specs := rapid.Custom(func(rt *rapid.T) *resource.Resource {
		host := rapid.SampledFrom([]string{"a.x", "b.x", "*.x"}).Draw(rt, "host")
		namespace, name := rapid.SampledFrom([]string{"n", "m"}).Draw(rt, "namespace"),
			rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "name")
		exportTo := rapid.SampledFrom([][]string{nil, {"."}, {"~"}, {"m"}}).Draw(rt, "exportTo")
		minutes := rapid.IntRange(0, 2).Draw(rt, "minutes")
		switch rapid.IntRange(0, 3).Draw(rt, "kind") {
		case 0:
			return object(t, resource.VirtualService, namespace, name, minutes,
				&networking.VirtualService{Hosts: []string{host}, ExportTo: exportTo})
		case 1:
			return object(t, resource.DestinationRule, namespace, name, minutes,
				&networking.DestinationRule{Host: host, ExportTo: exportTo})
		case 2: // bytes that are no ServiceEntry
			return resource.FromBody(resource.Meta{Key: resource.Key{
				Kind: resource.ServiceEntry, Namespace: namespace, Name: name,
			}}, []byte{1})
		default:
			se := serviceEntry(host, rapid.Uint32Range(80, 81).Draw(rt, "port"), exportTo...)
			se.Resolution = rapid.SampledFrom([]networking.ServiceEntry_Resolution{0, 1}).Draw(rt, "resolution")
			return object(t, resource.ServiceEntry, namespace, name, minutes, se)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		var table memstore.Table
		var index Index
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			table.Apply(
				rapid.SliceOfN(specs, 0, 3).Draw(t, "puts"),
				rapid.SliceOfN(rapid.Map(specs, (*resource.Resource).Key), 0, 2).Draw(t, "deletes"))
			if rapid.Bool().Draw(t, "ask") {
				continue
			}
			index.Follow(&table)
			want := find(&table)
			require.Equal(t, want, index.Conflicts())
			for r := range table.Snapshot().All() {
				var touching []Conflict
				for _, c := range want {
					for _, o := range c.Objects {
						if o.Key() == r.Key() {
							touching = append(touching, c)
						}
					}
				}
				require.ElementsMatch(t, touching, index.ConflictsOf(r.Key()))
			}
			for r := range index.claimants {
				require.True(t, slices.ContainsFunc(placesOf(r), func(p place) bool { return len(index.owners[p]) > 1 }),
					"claims are kept")
			}
		}
		table.Apply(nil, keysOf(table.Snapshot()))
		index.Follow(&table)
		require.Empty(t, index.claimants)
		require.Empty(t, index.owners)
		require.Empty(t, index.contested)
	})
}

func keysOf(s memstore.Snapshot) (keys []resource.Key) {
	for r := range s.All() {
		keys = append(keys, r.Key())
	}
	return keys
}
