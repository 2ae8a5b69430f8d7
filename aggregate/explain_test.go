package aggregate

import (
	"context"
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
		from := func(r *resource.Resource, source, place string) *resource.Resource {
			return r.WithOrigin(resource.Origin{Source: source, Place: place})
		}
		shop := object(t, resource.ServiceEntry, "shop", "reviews", 1, serviceEntry("reviews.shop.example", 80))
		files.Apply([]*resource.Resource{
			from(shop, "files", "reviews.yaml:1"),
			from(object(t, resource.ServiceEntry, "edge", "reviews", 9, serviceEntry("reviews.shop.example", 80)), "files", "edge.yaml:7"),
		}, nil)
		consul.Apply([]*resource.Resource{
			from(object(t, resource.ServiceEntry, "shop", "reviews", 2, serviceEntry("reviews.shop.example", 8080)), "consul",
				"consul dc1 service reviews"),
			from(object(t, resource.ServiceEntry, "shop", "all", 3, serviceEntry("*.example", 443)), "consul", "consul dc1 service all"),
		}, nil)
		files.MarkSynced()
		consul.MarkSynced()
		view := New(Source{Name: "consul", Reader: consul}, Source{Name: "files", Reader: files, Precedence: 10},
			Source{Name: "late", Reader: late})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { _ = view.Run(ctx) }()
		synctest.Wait()

		golden(t, "explain-key", view.Explain(shop.Key()))
		golden(t, "explain-host", view.ExplainHost("Reviews.shop.example"))
		golden(t, "explain-nothing", view.Explain(resource.Key{Kind: resource.Gateway, Namespace: "shop", Name: "none"}))
		golden(t, "explain-no-host", view.ExplainHost("elsewhere.test"))
		golden(t, "conflicts", view.Conflicts())

		files.Apply(nil, []resource.Key{shop.Key()})
		synctest.Wait() // the view serves consul's object, with its rank, before the sources change
		view.SetSources(Source{Name: "files", Reader: files}, Source{Name: "late", Reader: late})
		synctest.Wait()
		golden(t, "explain-retiring", view.Explain(shop.Key()))

		late.MarkSynced()
		synctest.Wait()
		require.Nil(t, view.Explain(shop.Key()).Winner)
		require.Empty(t, view.Conflicts())
	})
}

// TestExplain_ShowsObjectBeforeTransforms checks that winners and losers are explained with the object before its transforms.
func TestExplain_ShowsObjectBeforeTransforms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store := memstore.New(), memstore.New()
		original := object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("x.consul", 80))
		transformed := object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("x.mesh", 80)).WithOriginal(original)
		a.Apply([]*resource.Resource{transformed}, nil)
		store.Apply([]*resource.Resource{transformed}, nil)
		view := New(Source{Name: "a", Reader: a}, Source{Name: "b", Reader: store})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { _ = view.Run(ctx) }()
		synctest.Wait()
		e := view.Explain(transformed.Key())
		for _, s := range []*Statement{e.Winner, &e.Shadowed[0]} {
			require.Contains(t, string(s.Before.Object), `"x.consul"`)
			require.Contains(t, s.Before.Diff, "\n-    - x.consul\n+    - x.mesh\n")
		}

		// Only the object before the transforms changes, as with a label that they drop.
		a.Apply([]*resource.Resource{transformed.WithOriginal(object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("y.consul", 80)))}, nil)
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
		store.Apply([]*resource.Resource{winner}, nil)
		b.Apply([]*resource.Resource{object(t, resource.ServiceEntry, "n", "x", 1, serviceEntry("old.example", 80))}, nil)
		view := New(Source{Name: "a", Reader: store}, Source{Name: "b", Reader: b})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { _ = view.Run(ctx) }()
		synctest.Wait()
		e := view.ExplainHost("old.example")
		require.Len(t, e.Objects, 1)
		require.Equal(t, "a", e.Objects[0].Winner.Source)
	})
}
