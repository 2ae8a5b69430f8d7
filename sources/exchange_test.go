package sources

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources/lastgood"
)

// configuredSource is a source of a test with its settings.
type configuredSource struct {
	name, reading string
	source        Source
}

// specsOf returns the specs of sources with their stores, each with a new table.
func specsOf(state *lastgood.Dir, configured []configuredSource) (specs []Spec) {
	for _, c := range configured {
		specs = append(specs, Spec{
			Name: c.name, Source: c.source, Table: new(memstore.Table), LastGood: state.Source(c.name), Reading: c.reading,
		})
	}
	return specs
}

// withSources runs sources in one process, with the state in dir.
func withSources(t *testing.T, dir string, configured []configuredSource,
	test func(s *Supervisor, state *lastgood.Dir, specs []Spec),
) {
	t.Helper()
	state, err := lastgood.Open(dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, state.Close()) }()
	supervisor, specs := NewSupervisor(Options{Validate: allValid}), specsOf(state, configured)
	require.NoError(t, supervisor.Reconfigure(specs))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Run(ctx) }()
	time.Sleep(time.Second)
	synctest.Wait()
	test(supervisor, state, specs)
	cancel()
	require.NoError(t, <-ended)
}

// TestExchangedSettings_KeepStoredObjects: two or three sources exchange their addresses, by a restart, or by a reload
// before it. Then one of them cannot be reached: its objects are served.
func TestExchangedSettings_KeepStoredObjects(t *testing.T) {
	addresses := map[string]run{
		"X": wholeOf("x", 20), "Y": wholeOf("y", 20), "Z": wholeOf("z", 20),
	}
	as := func(a, b, c string) []configuredSource {
		return []configuredSource{{"a", a, addresses[a]}, {"b", b, addresses[b]}, {"c", c, addresses[c]}}
	}
	nothing := func(*Supervisor, *lastgood.Dir, []Spec) {}
	for _, exchanged := range [][]configuredSource{as("Y", "X", "Z"), as("Z", "Y", "X"), as("Y", "Z", "X"), as("Z", "X", "Y")} {
		for _, reloads := range []bool{false, true} {
			for away := range exchanged {
				synctest.Test(t, func(t *testing.T) {
					dir, reached := t.TempDir(), exchanged[away].source
					exchanged[away].source = run(unreachable)
					defer func() { exchanged[away].source = reached }()
					if reloads {
						withSources(t, dir, as("X", "Y", "Z"), func(s *Supervisor, state *lastgood.Dir, _ []Spec) {
							require.NoError(t, s.Reconfigure(specsOf(state, exchanged)))
							time.Sleep(time.Second)
						})
					} else {
						withSources(t, dir, as("X", "Y", "Z"), nothing)
					}
					for range 2 {
						withSources(t, dir, exchanged, func(_ *Supervisor, _ *lastgood.Dir, specs []Spec) {
							for i, spec := range specs {
								name := map[string]string{"X": "x000", "Y": "y000", "Z": "z000"}[exchanged[i].reading]
								require.Equal(t, 20, spec.Table.Snapshot().Len(), "%v %d", exchanged, i)
								require.NotNil(t, spec.Table.Snapshot().Get(keyed(name)))
							}
						})
					}
				})
			}
		}
	}
}

// TestReleasedHold_StaysReleased: an operator releases a hold before the source is read by changed settings. A restart
// does not hold the loss again, and keeps all other objects.
func TestReleasedHold_StaysReleased(t *testing.T) {
	held := run(func(ctx context.Context, sink Sink) error {
		_ = sink.ReplaceAll([]Content{{Group: "g", Resources: many("g", 40)}, {Group: "h", Resources: many("h", 3)}})
		sink.Synced()
		_ = sink.ReplaceAll([]Content{{Group: "g"}})
		<-ctx.Done()
		return ctx.Err()
	})
	before := []configuredSource{{"a", "1", held}}
	after := []configuredSource{{"a", "2", run(unreachable)}}
	release := func(s *Supervisor, specs []Spec) {
		require.Equal(t, 43, specs[0].Table.Snapshot().Len())
		_, _, err := s.Release("a", "", "the test")
		require.NoError(t, err)
		require.Equal(t, 3, specs[0].Table.Snapshot().Len())
	}
	for _, reloads := range []bool{false, true} {
		withDir(t, func(t *testing.T, dir string) {
			withSources(t, dir, before, func(s *Supervisor, state *lastgood.Dir, _ []Spec) {
				require.NotNil(t, s.Status()[0].Held)
				if reloads {
					specs := specsOf(state, after)
					require.NoError(t, s.Reconfigure(specs))
					release(s, specs)
				}
			})
			if !reloads {
				withSources(t, dir, after, func(s *Supervisor, _ *lastgood.Dir, specs []Spec) { release(s, specs) })
			}
			for _, settings := range [][]configuredSource{after, {{"a", "1", run(unreachable)}}} {
				withSources(t, dir, settings, func(s *Supervisor, _ *lastgood.Dir, specs []Spec) {
					require.Nil(t, s.Status()[0].Held)
					require.Equal(t, 3, specs[0].Table.Snapshot().Len())
				})
			}
		})
	}
}
