package sources

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

func TestNote_SurvivesReloadAndRestart(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		notes := make(chan string, 1)
		source := func(note string) run {
			return func(ctx context.Context, sink Sink) error {
				keeper := sink.(Keeper)
				notes <- string(keeper.LastNote())
				keeper.Keep([]byte(note))
				return whole(map[string][]*resource.Resource{"g": many("g", 1)})(ctx, sink)
			}
		}
		lifetime(t, dir, Options{}, source("one"), func(s *Supervisor, table *memstore.Table) {
			require.Empty(t, <-notes)
			configure(t, s, Spec{Name: "a", Source: source("two"), Table: table})
			require.Equal(t, "one", <-notes, "after a reload")
			synctest.Wait()
		})
		lifetime(t, dir, Options{}, source("three"), func(*Supervisor, *memstore.Table) {
			require.Equal(t, "two", <-notes, "after a restart")
		})
	})
}
