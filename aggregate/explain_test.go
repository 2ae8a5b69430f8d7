package aggregate

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares v, as JSON, with a file.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	path := filepath.Join("testdata", name+".json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, append(got, '\n'), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got)+"\n")
}

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, consul, late := memstore.New(), memstore.New(), memstore.New()
		placed := func(r *resource.Resource, source, place string) *resource.Resource {
			return r.WithOrigin(resource.Origin{Source: source, Place: place})
		}
		shop := object(t, resource.ServiceEntry, "shop", "reviews", 1, serviceEntry("reviews.shop.example", 80))
		files.Apply([]*resource.Resource{
			placed(shop, "files", "reviews.yaml:1"),
			placed(object(t, resource.ServiceEntry, "edge", "reviews", 9, serviceEntry("reviews.shop.example", 80)), "files", "edge.yaml:7"),
		}, nil)
		consul.Apply([]*resource.Resource{
			placed(object(t, resource.ServiceEntry, "shop", "reviews", 2, serviceEntry("reviews.shop.example", 8080)), "consul",
				"consul dc1 service reviews"),
			placed(object(t, resource.ServiceEntry, "shop", "all", 3, serviceEntry("*.example", 443)), "consul", "consul dc1 service all"),
		}, nil)
		files.MarkSynced()
		consul.MarkSynced()
		view := start(t, from("consul", consul), Source{Name: "files", Reader: files, Precedence: 10},
			from("late", late))
		synctest.Wait()

		golden(t, "explain-key", view.Explain(shop.Key()))
		golden(t, "explain-host", view.ExplainHost("Reviews.shop.example"))
		golden(t, "explain-nothing", view.Explain(resource.Key{Kind: resource.Gateway, Namespace: "shop", Name: "none"}))
		golden(t, "explain-no-host", view.ExplainHost("elsewhere.test"))
		golden(t, "conflicts", view.Competing())

		remove(files, shop.Key())
		synctest.Wait() // the view serves consul's object, with its rank, before the sources change
		view.SetSources(from("files", files), from("late", late))
		synctest.Wait()
		golden(t, "explain-retiring", view.Explain(shop.Key()))

		late.MarkSynced()
		synctest.Wait()
		require.Nil(t, view.Explain(shop.Key()).Winner)
		require.Empty(t, view.Competing())
	})
}

// TestExplain_ShowsObjectBeforeTransforms checks that winners and losers are explained with the object before its
// transforms.
func TestExplain_ShowsObjectBeforeTransforms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store := memstore.New(), memstore.New()
		original := object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("x.consul", 80))
		transformed := object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("x.mesh", 80)).WithOriginal(original)
		put(a, transformed)
		put(store, transformed)
		view := start(t, from("a", a), from("b", store))
		synctest.Wait()
		e := view.Explain(transformed.Key())
		for _, s := range []*Statement{e.Winner, &e.Shadowed[0]} {
			require.Contains(t, string(s.Before.Object), `"x.consul"`)
			require.Contains(t, s.Before.Diff, "\n-    - x.consul\n+    - x.mesh\n")
		}

		// Only the object before the transforms changes, as with a label that they drop.
		put(a, transformed.WithOriginal(object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("y.consul", 80))))
		synctest.Wait()
		require.Contains(t, view.Explain(transformed.Key()).Winner.Before.Diff, "y.consul")
		require.Contains(t, view.Explain(transformed.Key()).Shadowed[0].Before.Diff, "x.consul")
	})
}

// TestExplainFindsShadowedHosts checks that a shadowed object that names a host is found.
func TestExplainFindsShadowedHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(), memstore.New()
		winner := object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("new.example", 80))
		put(store, winner)
		put(b, object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("old.example", 80)))
		view := start(t, from("a", store), from("b", b))
		synctest.Wait()
		e := view.ExplainHost("old.example")
		require.Len(t, e.Objects, 1)
		require.Equal(t, "a", e.Objects[0].Winner.Source)
	})
}
