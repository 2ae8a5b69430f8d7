package memstore_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// worst is a table that changes at the worst moments, and may have forgotten earlier changes.
type worst struct {
	*memstore.Table
	beforeRead, afterRead func()
	forgets               bool
}

func (w *worst) Changes(revision memstore.Revision) ([]resource.Key, memstore.Snapshot, bool) {
	w.beforeRead()
	defer w.afterRead()
	if w.forgets {
		return nil, w.Snapshot(), false
	}
	return w.Table.Changes(revision)
}

// mirrorOf has a handler of c keep a mirror.
func mirrorOf(t *testing.T, c *memstore.Controller) *mirror {
	seen := &mirror{t: t, content: make(model)}
	c.RegisterEventHandler(resource.Gateway, seen.handle)
	return seen
}

// start runs c until the test ends.
func start(t *testing.T, c *memstore.Controller) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go c.Run(ctx)
}

func TestController_SeesChangesBetweenReadAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worst{Table: new(memstore.Table), beforeRead: func() {}}
		a := storetest.New(resource.Gateway, "ns", "a", "1")
		w.afterRead = func() {
			w.Apply([]*resource.Resource{a}, nil)
			w.MarkSynced()
		}
		controller := memstore.NewController(w)
		seen := mirrorOf(t, controller)
		w.beforeRead = func() {
			if controller.HasSynced() && seen.calls == 0 {
				t.Error("synced before the handler got the existing objects")
			}
		}
		start(t, controller)
		synctest.Wait()
		require.Equal(t, model{a.Key(): "1"}, seen.content)
		require.True(t, controller.HasSynced())
	})
}

func TestControllerCatchesUpByComparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worst{Table: new(memstore.Table), beforeRead: func() {}, afterRead: func() {}, forgets: true}
		c := memstore.NewController(w)
		seen := mirrorOf(t, c)
		start(t, c)
		a, b := storetest.New(resource.Gateway, "ns", "a", "1"), storetest.New(resource.Gateway, "ns", "b", "1")
		w.Apply([]*resource.Resource{a, b}, nil)
		synctest.Wait()
		w.Apply([]*resource.Resource{storetest.New(resource.Gateway, "ns", "a", "2")}, []resource.Key{b.Key()})
		synctest.Wait()
		require.Equal(t, model{a.Key(): "2"}, seen.content)
		require.Equal(t, 4, seen.calls)
	})
}

func TestMisuseOfAControllerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		controller := memstore.NewController(new(memstore.Table))
		start(t, controller)
		synctest.Wait()
		require.Panics(t, func() { controller.RegisterEventHandler(resource.Gateway, nil) })
		require.Panics(t, func() { controller.SetWatchErrorHandler(nil) })
		require.Panics(t, func() { controller.Run(t.Context()) })
	})
}
