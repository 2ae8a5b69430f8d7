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

// worst is a table on which something happens at the worst of moments, and that may have forgotten what changed.
type worst struct {
	*memstore.Table
	afterRead func()
	forgets   bool
}

func (w *worst) Changes(since memstore.Revision) ([]resource.Key, memstore.Snapshot, bool) {
	defer w.afterRead()
	if w.forgets {
		return nil, w.Snapshot(), false
	}
	return w.Table.Changes(since)
}

// follower runs a controller over r, and returns what its handler is told.
func follower(t *testing.T, r memstore.Reader) (*memstore.Controller, *mirror) {
	c := memstore.NewController(r)
	seen := &mirror{t: t, content: make(model)}
	c.RegisterEventHandler(resource.Gateway, seen.handle)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go c.Run(ctx)
	return c, seen
}

func TestControllerSeesWhatSlipsBetweenReadAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worst{Table: new(memstore.Table)}
		a := storetest.New(resource.Gateway, "ns", "a", "1")
		w.afterRead = func() {
			w.Apply([]*resource.Resource{a}, nil)
			w.MarkSynced()
		}
		c, seen := follower(t, w)
		synctest.Wait()
		require.Equal(t, model{a.Key(): "1"}, seen.content)
		require.True(t, c.HasSynced())
	})
}

func TestControllerCatchesUpByComparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worst{Table: new(memstore.Table), afterRead: func() {}, forgets: true}
		_, seen := follower(t, w)
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
		c, _ := follower(t, new(memstore.Table))
		synctest.Wait()
		require.Panics(t, func() { c.RegisterEventHandler(resource.Gateway, nil) })
		require.Panics(t, func() { c.SetWatchErrorHandler(nil) })
		require.Panics(t, func() { c.Run(t.Context()) })
	})
}
