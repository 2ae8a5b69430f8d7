package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// A follower gets each change once, including the first state, and then the sync.
func TestFollow(t *testing.T) {
	var table memstore.Table
	key := resource.Key{Kind: resource.ServiceEntry, Namespace: "a", Name: "x"}
	put := func() {
		r, err := resource.New(resource.Meta{Key: key}, &networking.ServiceEntry{})
		require.NoError(t, err)
		table.Apply([]*resource.Resource{r}, nil)
	}
	put()
	ctx, stop := context.WithCancel(t.Context())
	calls := 0
	err := memstore.Follow(ctx, &table, nil, func(keys []resource.Key, now memstore.Snapshot, incremental, synced bool) {
		calls++
		switch calls {
		case 1:
			require.False(t, incremental, "whatever there was before")
			require.NotNil(t, now.Get(key))
			require.False(t, synced)
			table.Apply(nil, []resource.Key{key}) // while it is busy
			put()
		case 2:
			require.True(t, incremental)
			require.Equal(t, []resource.Key{key}, keys)
			require.False(t, synced)
			table.MarkSynced()
		case 3:
			require.True(t, incremental)
			require.Empty(t, keys)
			require.True(t, synced)
			stop()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, calls)
}

// An idle loop answers a heartbeat, and a busy one does not.
func TestBeat(t *testing.T) {
	var table memstore.Table
	ctx, stop := context.WithCancel(t.Context())
	beats, busy, stopped := make(memstore.Beat), make(chan struct{}), make(chan error, 1)
	go func() {
		stopped <- memstore.Follow(ctx, &table, beats, func(_ []resource.Key, _ memstore.Snapshot, _, _ bool) { <-busy })
	}()
	hurry, late := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer late()
	require.ErrorIs(t, beats.Await(hurry), context.DeadlineExceeded)
	close(busy)
	require.NoError(t, beats.Await(t.Context()))
	require.NoError(t, beats.Await(t.Context()), "each time that it is asked")
	stop()
	require.ErrorIs(t, <-stopped, context.Canceled)
}
