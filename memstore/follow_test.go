package memstore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// Who follows is told of everything once, the first state included, and that all is there.
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
	err := memstore.Follow(ctx, &table, func(keys []resource.Key, now memstore.Snapshot, incremental, synced bool) {
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
