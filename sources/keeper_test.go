package sources

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

func TestWhatASourceKeepsOutlivesReloadAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		found := make(chan string, 1)
		source := func(note string) run {
			return func(ctx context.Context, sink Sink) error {
				keeper := sink.(Keeper)
				found <- string(keeper.Kept())
				keeper.Keep([]byte(note))
				return whole(map[string][]*resource.Resource{"g": many("g", 1)})(ctx, sink)
			}
		}
		lifetime(t, dir, Options{}, source("one"), func(s *Supervisor, table *memstore.Table) {
			require.Empty(t, <-found)
			require.NoError(t, s.Reconfigure([]Spec{{Name: "a", Source: source("two"), Table: table}}))
			require.Equal(t, "one", <-found, "after a reload")
			synctest.Wait()
		})
		lifetime(t, dir, Options{}, source("three"), func(*Supervisor, *memstore.Table) {
			require.Equal(t, "two", <-found, "after a restart")
		})
	})
}
