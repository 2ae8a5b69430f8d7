package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestEvents notes events before and while the history runs, runs it once more, and finds them among the changes, which they do not disturb.
func TestEvents(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	table.Apply([]*resource.Resource{made(1, "one")}, nil)
	table.MarkSynced()
	h := opened(t, dir, DefaultSize, table)
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		return func() { cancel(); require.NoError(t, <-ended) }
	}
	events := func(q Query) (all []string) {
		a, err := h.Find(q)
		require.NoError(t, err)
		for _, e := range a.Entries {
			all = append(all, e.Event+" "+e.Source+" "+e.Text)
		}
		return all
	}
	h.Note("held", "rules", "much")
	stop := run()
	require.Eventually(t, func() bool { return len(events(Query{})) == 1 }, 10*time.Second, time.Millisecond)
	h.Note("hold-ended", "rules", "released")
	stop()
	table.Apply([]*resource.Resource{made(1, "two")}, nil)
	stop = run()
	require.Eventually(t, func() bool { return len(events(Query{})) == 3 }, 10*time.Second, time.Millisecond)
	h.Note(Reloaded, "", "by somebody")
	stop()
	want := []string{"held rules much", "hold-ended rules released", "updated rules ", "reloaded  by somebody"}
	require.Equal(t, want, events(Query{}))
	require.Equal(t, want[:3], events(Query{Source: "rules"}))
	require.Equal(t, want[2:3], events(Query{Kind: resource.ServiceEntry}))
	require.Equal(t, map[string]string{"s1": "two"}, bodies(t, h, time.Now()))

	h = opened(t, dir, DefaultSize, table)
	run()()
	require.Equal(t, want, events(Query{}))
}
