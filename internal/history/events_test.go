package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestEvents notes events before and while the history runs, runs it once more, and finds them among the changes, which
// they do not disturb.
func TestEvents(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	table.Apply([]*resource.Resource{newObject(1, "one")}, nil)
	table.MarkSynced()
	history := opened(t, dir, DefaultSize, table)
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- history.Run(ctx) }()
		return func() { cancel(); require.NoError(t, <-ended) }
	}
	events := func(q Query) (lines []string) {
		a, err := history.Find(q)
		require.NoError(t, err)
		for _, e := range a.Entries {
			lines = append(lines, e.Event+" "+e.Source+" "+e.Text)
		}
		return lines
	}
	history.Note("held", "rules", "much")
	stop := run()
	require.Eventually(t, func() bool { return len(events(Query{})) == 1 }, 10*time.Second, time.Millisecond)
	history.Note("hold-ended", "rules", "released")
	stop()
	table.Apply([]*resource.Resource{newObject(1, "two")}, nil)
	stop = run()
	require.Eventually(t, func() bool { return len(events(Query{})) == 3 }, 10*time.Second, time.Millisecond)
	history.Note(Reloaded, "", "by somebody")
	stop()
	want := []string{"held rules much", "hold-ended rules released", "updated rules ", "reloaded  by somebody"}
	require.Equal(t, want, events(Query{}))
	require.Equal(t, want[:3], events(Query{Source: "rules"}))
	require.Equal(t, want[2:3], events(Query{Kind: resource.ServiceEntry}))
	require.Equal(t, map[string]string{"s1": "two"}, bodies(t, history, time.Now()))

	history = opened(t, dir, DefaultSize, table)
	run()()
	require.Equal(t, want, events(Query{}))
}

// TestEvents_BeforeSync notes events while the view is not synced. They are found at once, and by the next process; the
// objects that are served then are no change.
func TestEvents_BeforeSync(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	texts := func(h *History, waiting bool) (texts []string) {
		a, err := h.Find(Query{})
		require.NoError(t, err)
		require.Equal(t, waiting, a.Waiting)
		for _, e := range a.Entries {
			texts = append(texts, e.Event+e.Text)
		}
		return texts
	}
	run := func(h *History) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		return func() { cancel(); require.NoError(t, <-ended) }
	}
	h := opened(t, dir, LeastSize, table)
	stop := run(h)
	h.Note(Reloaded, "", " 1")
	require.Eventually(t, func() bool { return len(texts(h, true)) == 1 }, 10*time.Second, time.Millisecond)
	_, err := h.ServedAt(time.Now(), "")
	require.ErrorContains(t, err, "the history of objects begins when all sources were read")
	h.Note(ReloadRefused, "", " 2")
	stop()

	want := []string{"reloaded 1", "reload-refused 2"}
	h = opened(t, dir, LeastSize, table)
	health := h.Health()
	require.True(t, health.Well(), "no file is missing")
	require.Equal(t, want, texts(h, true))
	stop = run(h)
	table.Apply([]*resource.Resource{newObject(1, "one")}, nil)
	table.MarkSynced()
	require.Eventually(t, func() bool { return h.readable.Load().served.Len() == 1 }, 10*time.Second, time.Millisecond)
	stop()
	require.Equal(t, want, texts(h, false))

	// The next process waits again, and then has the changes since the first one was complete.
	table.Apply([]*resource.Resource{newObject(1, "two")}, nil)
	unread := new(memstore.Table)
	h = opened(t, dir, LeastSize, unread)
	stop = run(h)
	for i := range 2000 { // more than a segment holds
		h.Note(Reloaded, "", " again")
		if i%500 == 0 {
			require.Eventually(t, func() bool { return len(h.events) == 0 }, 10*time.Second, time.Millisecond)
		}
	}
	unread.Apply([]*resource.Resource{newObject(1, "two")}, nil)
	unread.MarkSynced()
	require.Eventually(t, func() bool { return len(h.events) == 0 && h.readable.Load().served.Len() == 1 }, 10*time.Second, time.Millisecond)
	stop()
	answer, err := h.Find(Query{Kind: resource.ServiceEntry})
	require.NoError(t, err)
	require.Len(t, answer.Entries, 1)
	require.Equal(t, Updated, answer.Entries[0].Event)
	require.True(t, answer.Entries[0].Unwatched)
	require.Len(t, texts(h, false), 2003)
}

// TestFind_OrderOfTime writes an event later than a change that was after it.
func TestFind_OrderOfTime(t *testing.T) {
	table := new(memstore.Table)
	history := opened(t, t.TempDir(), DefaultSize, table)
	history.round(table)
	early := &Entry{Time: time.Now().UTC(), Event: Reloaded}
	table.Apply([]*resource.Resource{newObject(1, "one")}, nil)
	history.round(table)
	history.recordEvent(early)
	answer, err := history.Find(Query{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, Added, answer.Entries[0].Event)
	require.Equal(t, 1, answer.Earlier)
	answer, err = history.Find(Query{})
	require.NoError(t, err)
	require.Equal(t, Reloaded, answer.Entries[0].Event)
}
