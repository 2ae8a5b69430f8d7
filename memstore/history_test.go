package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// The model of a store is a map from key to content. Few keys and contents, so that histories come across each other.
type model map[resource.Key]string

var (
	kinds      = rapid.SampledFrom([]resource.Kind{resource.Gateway, resource.ServiceEntry, resource.WorkloadEntry})
	namespaces = rapid.SampledFrom([]string{"a", "ab", "b"})
	nameGen    = rapid.SampledFrom([]string{"b", "c", "x", "y"})
	contents   = rapid.SampledFrom([]string{"1", "2", "3"})
	resources  = rapid.Custom(func(t *rapid.T) *resource.Resource {
		r := storetest.New(kinds.Draw(t, "kind"), namespaces.Draw(t, "namespace"), nameGen.Draw(t, "name"), contents.Draw(t, "content"))
		return r.WithOrigin(resource.Origin{Place: rapid.SampledFrom([]string{"", "x:1", "x:2"}).Draw(t, "place")})
	})
	keyGen = rapid.Map(resources, (*resource.Resource).Key)
)

// contentOf returns a snapshot's content in the form of the model, and checks its order and counts.
func contentOf(t rapid.TB, snapshot memstore.Snapshot) model {
	t.Helper()
	m := make(model)
	resources := slices.Collect(snapshot.All())
	if !slices.IsSortedFunc(resources, func(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) }) {
		t.Fatalf("not in order: %v", resources)
	}
	perKind := make(map[resource.Kind]int)
	for _, r := range resources {
		m[r.Key()] = storetest.Content(r)
		perKind[r.Key().Kind]++
		if snapshot.Get(r.Key()) != r {
			t.Fatalf("Get and All disagree on %s", r.Key())
		}
	}
	if len(m) != len(resources) || snapshot.Len() != len(resources) {
		t.Fatalf("%d resources, %d keys, Len %d", len(resources), len(m), snapshot.Len())
	}
	for kind, n := range perKind {
		if snapshot.LenKind(kind) != n {
			t.Fatalf("LenKind(%s) is %d, not %d", kind, snapshot.LenKind(kind), n)
		}
	}
	return m
}

// mirror follows events, and fails on one that does not fit those before.
type mirror struct {
	t       rapid.TB
	content model
	calls   int
	gate    chan struct{} // nil: handlers are fast; otherwise they wait for it to be closed
}

func (m *mirror) handle(old, new *resource.Resource, event memstore.Event) {
	if m.gate != nil {
		<-m.gate
	}
	m.calls++
	change := memstore.Change{Old: old, New: new}
	if change.Event() != event {
		m.t.Errorf("%v is called %d", change, event)
	}
	key := change.Key()
	if handled, ok := m.content[key]; ok != (old != nil) || handled != storetest.Content(old) {
		m.t.Errorf("%s: handlers saw %q, the event says it was %q", key, handled, storetest.Content(old))
	}
	if resource.Equal(old, new) {
		m.t.Errorf("%s: an event of no change", key)
	}
	if new != nil {
		m.content[key] = storetest.Content(new)
	} else {
		delete(m.content, key)
	}
}

// pastSnapshot is an earlier snapshot, with its required content.
type pastSnapshot struct {
	snapshot memstore.Snapshot
	content  model
}

// TestHistories runs random histories of operations on a store, and on its model, with a handler that is slow at times.
func TestHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, testHistory) // not a *testing.T: rapid would ask it for the deadline, which is not in the bubble
	})
}

func testHistory(t *rapid.T) {
	store, want := memstore.New(), make(model)
	past := []pastSnapshot{{store.Snapshot(), model{}}}

	seen := &mirror{t: t, content: make(model)}
	for _, kind := range []resource.Kind{resource.Gateway, resource.ServiceEntry, resource.WorkloadEntry} {
		store.RegisterEventHandler(kind, seen.handle)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	open := func() {
		if seen.gate != nil {
			close(seen.gate)
			synctest.Wait()
			seen.gate = nil
		}
	}
	defer func() {
		open()
		cancel()
		running.Wait()
	}()

	// expect checks the outcome of a mutator by the rules of ConfigStore, and brings the model up to date.
	expect := func(err error, wantErr error, apply func()) {
		t.Helper()
		if !errors.Is(err, wantErr) {
			t.Fatalf("error is %v, want %v", err, wantErr)
		}
		if wantErr == nil {
			apply()
		}
	}
	// version draws a version to expect: none, the right one, or that of some content.
	version := func(key resource.Key) (version string, matches bool) {
		right := storetest.New(key.Kind, key.Namespace, key.Name, want[key]).Version()
		version = rapid.SampledFrom([]string{"", right, storetest.New(key.Kind, key.Namespace, key.Name, "1").Version()}).Draw(t, "version")
		return version, version == "" || version == right
	}
	conditions := func(key resource.Key, matches bool) error {
		switch _, ok := want[key]; {
		case !ok:
			return memstore.ErrNotFound
		case !matches:
			return memstore.ErrConflict
		}
		return nil
	}

	t.Repeat(map[string]func(*rapid.T){
		"apply": func(t *rapid.T) {
			puts, deletes := rapid.SliceOfN(resources, 0, 5).Draw(t, "puts"), rapid.SliceOfN(keyGen, 0, 5).Draw(t, "deletes")
			before := store.Snapshot()
			changes, now := store.Apply(puts, deletes)
			for _, key := range deletes {
				delete(want, key)
			}
			for _, r := range puts {
				want[r.Key()] = storetest.Content(r)
			}
			differ := slices.Collect(memstore.Diff(before, now))
			slices.SortFunc(changes, func(a, b memstore.Change) int { return a.Key().Compare(b.Key()) })
			if !slices.Equal(changes, differ) {
				t.Fatalf("Apply says %v, states differ in %v", changes, differ)
			}
			for _, r := range puts[max(0, len(puts)-1):] {
				if got := store.Get(r.Key()).Origin(); got != r.Origin() {
					t.Fatalf("%s: origin %q, put %q", r.Key(), got, r.Origin())
				}
			}
		},
		"create": func(t *rapid.T) {
			r := resources.Draw(t, "resource")
			var wantErr error
			if _, ok := want[r.Key()]; ok {
				wantErr = memstore.ErrExists
			}
			_, err := store.Create(r)
			expect(err, wantErr, func() { want[r.Key()] = storetest.Content(r) })
		},
		"update": func(t *rapid.T) {
			r := resources.Draw(t, "resource")
			ifVersion, matches := version(r.Key())
			_, err := store.Update(r, ifVersion)
			expect(err, conditions(r.Key(), matches), func() { want[r.Key()] = storetest.Content(r) })
		},
		"delete": func(t *rapid.T) {
			key := keyGen.Draw(t, "key")
			ifVersion, matches := version(key)
			expect(store.Delete(key, ifVersion), conditions(key, matches), func() { delete(want, key) })
		},
		"patch": func(t *rapid.T) {
			r := resources.Draw(t, "resource")
			_, err := store.Patch(r.Key(), func(old *resource.Resource) (*resource.Resource, error) {
				if storetest.Content(old) != want[r.Key()] {
					t.Fatalf("patching %q, want %q", storetest.Content(old), want[r.Key()])
				}
				return r, nil
			})
			expect(err, conditions(r.Key(), true), func() { want[r.Key()] = storetest.Content(r) })
		},
		"snapshot": func(*rapid.T) { past = append(past, pastSnapshot{store.Snapshot(), maps.Clone(want)}) },
		"run": func(*rapid.T) {
			if !store.HasStarted() {
				running.Go(func() { store.Run(ctx) })
				synctest.Wait()
			}
		},
		"sync": func(*rapid.T) { store.MarkSynced() },
		"handlers block": func(*rapid.T) {
			synctest.Wait()
			if seen.gate == nil {
				seen.gate = make(chan struct{})
			}
		},
		"handlers go on": func(*rapid.T) { open() },
		"": func(t *rapid.T) {
			if got := contentOf(t, store.Snapshot()); !maps.Equal(got, want) {
				t.Fatalf("store holds %v, want %v", got, want)
			}
			kind, namespace := kinds.Draw(t, "kind"), rapid.SampledFrom([]string{"", "a", "ab", "b"}).Draw(t, "namespace")
			if got, count := store.List(kind, namespace), contentIn(want, kind, namespace); len(got) != count {
				t.Fatalf("List(%s, %q) has %d, want %d", kind, namespace, len(got), count)
			}
			checkPast(t, store, past)
			if seen.gate == nil && store.HasStarted() {
				synctest.Wait()
				if !maps.Equal(seen.content, want) {
					t.Fatalf("handlers saw %v, want %v", seen.content, want)
				}
				if store.HasSynced() != store.Synced() {
					t.Fatalf("HasSynced is %t without pending events, Synced is %t", store.HasSynced(), store.Synced())
				}
			}
		},
	})

	// Whatever happened while the handler was blocked, the one event that it was in, and one a key, is all that is left.
	if seen.gate != nil {
		before := seen.calls
		open()
		keys := 3 * 3 * 4
		if n := seen.calls - before; n > 2*keys {
			t.Fatalf("%d events were queued, for %d keys", n, keys)
		}
	}
	if store.HasStarted() && !maps.Equal(seen.content, want) {
		t.Fatalf("in the end handlers saw %v, want %v", seen.content, want)
	}
}

func contentIn(m model, kind resource.Kind, namespace string) (n int) {
	for key := range m {
		if key.Kind == kind && (namespace == "" || key.Namespace == namespace) {
			n++
		}
	}
	return n
}

// checkPast checks that earlier snapshots are unchanged, and that Changes leads from each to the present.
func checkPast(t *rapid.T, store memstore.Reader, past []pastSnapshot) {
	for _, k := range past {
		if got := contentOf(t, k.snapshot); !maps.Equal(got, k.content) {
			t.Fatalf("the snapshot of revision %d became %v, was %v", k.snapshot.Revision(), got, k.content)
		}
		keys, now, ok := store.Changes(k.snapshot.Revision())
		if !ok {
			t.Fatalf("a history this short is not too old")
		}
		if err := leadsTo(k.content, keys, now); err != nil {
			t.Fatalf("from revision %d: %v", k.snapshot.Revision(), err)
		}
	}
}

// leadsTo checks that taking over keys, each once, turns before into the content of now.
func leadsTo(before model, keys []resource.Key, now memstore.Snapshot) error {
	after := maps.Clone(before)
	seen := make(map[resource.Key]bool)
	for _, key := range keys {
		if seen[key] {
			return fmt.Errorf("%s is named twice", key)
		}
		seen[key] = true
		if r := now.Get(key); r != nil {
			after[key] = storetest.Content(r)
		} else {
			delete(after, key)
		}
	}
	want := make(model)
	for r := range now.All() {
		want[r.Key()] = storetest.Content(r)
	}
	if !maps.Equal(after, want) {
		return fmt.Errorf("changed keys %v lead to %v, the state is %v", keys, after, want)
	}
	return nil
}
