package sources

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
)

// Warnings about an object that exists twice appear at each of its places, and at the served one.
func TestWarnings_OfDuplicateObject(t *testing.T) {
	opts := Options{Validate: func(r *resource.Resource) (resource.Errors, error) {
		return resource.Errors{{Origin: resource.Origin{Place: r.Origin().Place}, Err: errors.New("is odd")}}, nil
	}}
	within(t, opts, func(t *testing.T, supervisor *Supervisor) {
		sinks := make(chan Sink, 1)
		configure(t, supervisor, Spec{
			Name: "a", Table: new(memstore.Table), Source: handing(sinks), Guard: guard.Settings{Off: true},
		})
		sink := <-sinks
		for range 3 {
			require.NoError(t, replace(sink, "g", objects(newObject("x", "1", "g:1"), newObject("x", "1", "g:9"))))
			sink.Synced()
			require.Equal(t, []string{"g:1: is odd", "g:9: is odd"}, supervisor.Status()[0].Warnings)
			require.Equal(t, []string{"g:1: is odd"}, supervisor.Serving(keyed("x"))[0].Warnings)
		}
	})
}
