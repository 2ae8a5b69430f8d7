package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

func testEvents(each func(string, func(*testing.T, *subject))) {
	each("HasStarted tells that Run was called", func(t *testing.T, subject *subject) {
		require.False(t, subject.Store.HasStarted())
		stop := subject.run(t)
		Eventually(t, subject.Store.HasStarted, "HasStarted")
		stop() // returns only if Run does
		require.True(t, subject.Store.HasStarted())
	})

	each("HasSynced waits for the handlers to be told of everything", func(t *testing.T, subject *subject) {
		release := make(chan struct{})
		var handled atomic.Int32
		subject.Store.RegisterEventHandler(resource.Gateway, func(_, _ *resource.Resource, event memstore.Event) {
			<-release
			handled.Add(1)
		})
		subject.put(t, New(resource.Gateway, "ns", "a", "1"), New(resource.Gateway, "ns", "b", "2"))
		subject.run(t)
		defer close(release)
		subject.markSynced()
		Eventually(t, subject.Store.HasStarted, "HasStarted")
		require.False(t, subject.Store.HasSynced())
		release <- struct{}{}
		require.False(t, subject.Store.HasSynced(), "one event is still to be handled")
		release <- struct{}{}
		Eventually(t, subject.Store.HasSynced, "HasSynced")
		require.Equal(t, int32(2), handled.Load())
	})

	each("HasSynced needs complete content", func(t *testing.T, subject *subject) {
		if subject.MarkSynced == nil {
			t.Skip("the store syncs by itself")
		}
		log := record(subject, resource.Gateway)
		subject.run(t)
		subject.put(t, New(resource.Gateway, "ns", "a", "1"))
		log.waitFor(t, "add ns/a=1")
		require.False(t, subject.Store.HasSynced())
		subject.MarkSynced()
		Eventually(t, subject.Store.HasSynced, "HasSynced, though nothing else happens")
	})

	each("Events tell what changed", func(t *testing.T, subject *subject) {
		eventLog := record(subject, resource.Gateway)
		subject.put(t, New(resource.Gateway, "ns", "a", "1"))
		subject.markSynced()
		subject.run(t)
		eventLog.waitFor(t, "add ns/a=1")
		subject.put(t, New(resource.Gateway, "ns", "a", "2"))
		eventLog.waitFor(t, "add ns/a=1", "update ns/a=1 to 2")
		subject.put(t, New(resource.Telemetry, "ns", "a", "3")) // nobody asked for this kind
		subject.remove(t, New(resource.Gateway, "ns", "a", "").Key())
		eventLog.waitFor(t, "add ns/a=1", "update ns/a=1 to 2", "delete ns/a=2")
	})

	each("What changes nothing is no event", func(t *testing.T, subject *subject) {
		eventLog := record(subject, resource.Gateway)
		subject.run(t)
		a := New(resource.Gateway, "ns", "a", "1")
		subject.put(t, a)
		eventLog.waitFor(t, "add ns/a=1")
		subject.put(t, New(resource.Gateway, "ns", "a", "1"))
		moved := a.WithOrigin(resource.Origin{Source: "test", Place: "elsewhere:1"})
		subject.put(t, moved)
		Eventually(t, func() bool { return subject.Store.Get(a.Key()).Origin() == moved.Origin() },
			"the new origin is stored")
		subject.put(t, New(resource.Gateway, "ns", "z", "2"))
		eventLog.waitFor(t, "add ns/a=1", "add ns/z=2")
	})

	each("Handlers are called in order, one at a time", func(t *testing.T, subject *subject) {
		var busy atomic.Bool
		var mu sync.Mutex
		var calls []string
		for i := range 3 {
			for _, kind := range []resource.Kind{resource.Gateway, resource.Sidecar} {
				subject.Store.RegisterEventHandler(kind, func(_, object *resource.Resource, _ memstore.Event) {
					if !busy.CompareAndSwap(false, true) {
						t.Error("two handlers at once")
					}
					mu.Lock()
					calls = append(calls, strconv.Itoa(i)+" "+Content(object))
					mu.Unlock()
					busy.Store(false)
				})
			}
		}
		subject.run(t)
		subject.put(t, New(resource.Gateway, "ns", "a", "1"))
		subject.put(t, New(resource.Sidecar, "ns", "a", "2"))
		Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(calls) == 6 }, "all were called")
		require.Equal(t, []string{"0 1", "1 1", "2 1", "0 2", "1 2", "2 2"}, calls)
	})

	each("Reads in a handler are at least as new as the event", func(t *testing.T, subject *subject) {
		latest := 0 // of the one key; written by the test before the store sees it
		var mu sync.Mutex
		var seen atomic.Int64
		subject.Store.RegisterEventHandler(key.Kind, func(_, r *resource.Resource, _ memstore.Event) {
			event, _ := strconv.Atoi(Content(r))
			read, _ := strconv.Atoi(Content(subject.Store.Get(key)))
			mu.Lock()
			defer mu.Unlock()
			if read < event || read > latest {
				t.Errorf("event %d, read %d, latest %d", event, read, latest)
			}
			seen.Store(int64(event))
		})
		subject.run(t)
		for i := 1; i <= 50; i++ {
			mu.Lock()
			latest = i
			mu.Unlock()
			subject.put(t, entry(strconv.Itoa(i)))
		}
		Eventually(t, func() bool { return seen.Load() == 50 }, "the last event")
	})

	each("A slow handler sees the changes of a key as one", func(t *testing.T, subject *subject) {
		entered, release := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(release) })
		defer goOn()
		var once sync.Once
		subject.Store.RegisterEventHandler(resource.Gateway, func(_, _ *resource.Resource, _ memstore.Event) {
			once.Do(func() {
				close(entered)
				<-release
			})
		})
		eventLog := record(subject, resource.Gateway)
		subject.put(t, New(resource.Gateway, "ns", "a", "1"))
		subject.run(t)
		<-entered
		for i := range 200 {
			subject.put(t, New(resource.Gateway, "ns", "a", strconv.Itoa(i)))
			subject.put(t, New(resource.Gateway, "ns", "b", strconv.Itoa(i)))
			subject.put(t, New(resource.Gateway, "ns", "gone", strconv.Itoa(i)))
			subject.remove(t, New(resource.Gateway, "ns", "gone", "").Key())
		}
		goOn()
		eventLog.waitForSet(t, "add ns/a=1", "update ns/a=1 to 199", "add ns/b=199")
	})

	each("Deleted and created again is an update", func(t *testing.T, subject *subject) {
		entered, release := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(release) })
		defer goOn()
		subject.Store.RegisterEventHandler(resource.Telemetry, func(_, _ *resource.Resource, _ memstore.Event) {
			close(entered)
			<-release
		})
		eventLog := record(subject, resource.Gateway)
		a, b := New(resource.Gateway, "ns", "a", "1"), New(resource.Gateway, "ns", "b", "1")
		b = b.WithCreated(time.Unix(1_700_000_000, 0)) // a store that dates objects would date the second b anew
		subject.put(t, a, b)
		subject.run(t)
		eventLog.waitForSet(t, "add ns/a=1", "add ns/b=1")
		subject.put(t, New(resource.Telemetry, "ns", "stop", "")) // holds the worker
		<-entered
		subject.remove(t, a.Key(), b.Key())
		subject.put(t, New(resource.Gateway, "ns", "a", "2"), b)
		subject.put(t, New(resource.Gateway, "ns", "last", "3"))
		goOn()
		eventLog.waitForSet(t, "add ns/a=1", "add ns/b=1", "update ns/a=1 to 2", "add ns/last=3")
	})

	each("A handler may call the store", func(t *testing.T, subject *subject) {
		var listed atomic.Int32
		subject.Store.RegisterEventHandler(resource.Gateway, func(_, _ *resource.Resource, _ memstore.Event) {
			if subject.Apply != nil {
				subject.Apply([]*resource.Resource{New(resource.Telemetry, "ns", "from-handler", "1")}, nil)
			} else {
				_, err := subject.Store.Create(New(resource.Telemetry, "ns", "from-handler", "1"))
				if err != nil {
					t.Error(err)
				}
			}
			listed.Store(int32(len(subject.Store.List(resource.Gateway, ""))))
		})
		log := record(subject, resource.Telemetry)
		subject.run(t)
		subject.put(t, New(resource.Gateway, "ns", "a", "1"))
		log.waitFor(t, "add ns/from-handler=1")
		require.Equal(t, int32(1), listed.Load())
	})

	each("Reported errors reach the watch error handler", func(t *testing.T, subject *subject) {
		reporter, ok := subject.Store.(interface{ ReportError(error) })
		if !ok {
			t.Skip("errors come from within")
		}
		down := errors.New("the registry is down")
		reported := make(chan error, 1)
		subject.Store.SetWatchErrorHandler(func(err error) { reported <- err })
		reporter.ReportError(errors.New("an older one"))
		reporter.ReportError(down)
		subject.run(t)
		require.Equal(t, down, <-reported, "the last error counts")
	})
}

// eventLog is what a handler was told, as text.
type eventLog struct {
	mu     sync.Mutex
	events []string // guarded by mu
}

func record(subject *subject, kind resource.Kind) *eventLog {
	log := new(eventLog)
	subject.Store.RegisterEventHandler(kind, func(old, updated *resource.Resource, event memstore.Event) {
		log.mu.Lock()
		defer log.mu.Unlock()
		log.events = append(log.events, describe(old, updated, event))
	})
	return log
}

func describe(old, updated *resource.Resource, event memstore.Event) string {
	switch {
	case event == memstore.Added && old == nil && updated != nil:
		return fmt.Sprintf("add %s=%s", updated.Key().FullName(), Content(updated))
	case event == memstore.Updated && old != nil && updated != nil:
		return fmt.Sprintf("update %s=%s to %s", updated.Key().FullName(), Content(old), Content(updated))
	case event == memstore.Deleted && old != nil && updated == nil:
		return fmt.Sprintf("delete %s=%s", old.Key().FullName(), Content(old))
	default:
		return fmt.Sprintf("malformed event %d: %v, %v", event, old, updated)
	}
}

func (l *eventLog) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.events...)
}

// waitFor waits for as many events as are wanted, and checks that they are those.
func (l *eventLog) waitFor(t *testing.T, want ...string) {
	t.Helper()
	Eventually(t, func() bool { return len(l.get()) >= len(want) }, "%d events", len(want))
	require.Equal(t, want, l.get())
}

// waitForSet is waitFor where events of different keys may come in any order.
func (l *eventLog) waitForSet(t *testing.T, want ...string) {
	t.Helper()
	Eventually(t, func() bool { return len(l.get()) >= len(want) }, "%d events", len(want))
	require.ElementsMatch(t, want, l.get())
}
