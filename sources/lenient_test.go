package sources

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestLenientSource_ServesObjectsThatBreakRules: with `validation: warn`, a broken rule of Istio is a warning, a wrong
// form is not; and a source that is strict again validates its objects again.
func TestLenientSource_ServesObjectsThatBreakRules(t *testing.T) {
	opts := Options{Validate: func(r *resource.Resource) (resource.Errors, error) {
		return nil, resource.Errors{{Key: r.Key(), Origin: r.Origin(), Err: errors.New("spec: too new"), Rule: r.Key().Name != "form"}}
	}}
	within(t, opts, func(t *testing.T, supervisor *Supervisor) {
		table := new(memstore.Table)
		spec := Spec{Name: "a", Table: table, Lenient: true, Source: run(func(ctx context.Context, sink Sink) error {
			_ = replace(sink, "g", objects(newObject("x"), newObject("form"))) // which the sink tells
			sink.Synced()
			<-ctx.Done()
			return ctx.Err()
		})}
		configure(t, supervisor, spec)
		synctest.Wait()
		require.NotNil(t, get(table, "x"))
		require.Nil(t, get(table, "form"))
		require.Len(t, supervisor.Status()[0].Warnings, 1)
		require.Len(t, supervisor.Status()[0].Quarantined, 1)

		spec.Lenient = false
		configure(t, supervisor, spec)
		synctest.Wait()
		require.Empty(t, supervisor.Status()[0].Warnings)
		require.Len(t, supervisor.Status()[0].Quarantined, 2)
		require.NotNil(t, get(table, "x"), "like objects that were served before a rule existed")
	})
}
