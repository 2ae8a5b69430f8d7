// Package storetest is the conformance suite of config stores: whatever implements memstore.ConfigStoreController
// passes it, be it in memory or merged of several.
package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// Subject is an empty store under test, not yet run.
type Subject struct {
	Store memstore.ConfigStoreController
	// Reader is the store as servers read it, or nil if it cannot be read so.
	Reader memstore.Reader
	// Apply changes the content from below, as sources do; the store may show it later. If it is nil, the mutators are
	// used.
	Apply func(puts []*resource.Resource, deletes []resource.Key)
	// MarkSynced says that the content is complete. If it is nil, the store finds that out for itself.
	MarkSynced func()
	// ReadOnly says that the mutators fail with memstore.ErrReadOnly.
	ReadOnly bool
}

// Run tests the stores that open makes, a new one for each test.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	each := func(name string, test func(*testing.T, *subject)) {
		t.Run(name, func(t *testing.T) { test(t, &subject{open(t)}) })
	}
	t.Run("Read", func(t *testing.T) { testRead(each) })
	if open(t).ReadOnly {
		each("ReadOnly", testReadOnly)
	} else {
		testMutators(each)
	}
	testEvents(each)
	if open(t).Reader != nil {
		testReader(each)
	}
}

// New returns a resource whose content is what is given.
func New(kind resource.Kind, namespace, name, content string) *resource.Resource {
	return resource.FromBody(resource.Meta{
		Key:    resource.Key{Kind: kind, Namespace: namespace, Name: name},
		Labels: map[string]string{"content": content},
	}, nil)
}

// Content returns what New was given, and "" for nil.
func Content(object *resource.Resource) string {
	if object == nil {
		return ""
	}
	return object.Labels()["content"]
}

// equal reports whether two resources have the same key and content, whenever they were created: a store may know
// better.
func equal(a, b *resource.Resource) bool {
	return a != nil && resource.Equal(a.WithCreated(time.Time{}), b.WithCreated(time.Time{}))
}

// subject is a Subject with what the tests do to it.
type subject struct{ Subject }

// put makes the resources part of the store, whatever was there, and waits until it shows them.
func (s *subject) put(t *testing.T, resources ...*resource.Resource) {
	t.Helper()
	if s.Apply != nil {
		s.Apply(resources, nil)
	} else {
		for _, object := range resources {
			_, err := s.Store.Create(object)
			if err != nil {
				_, err = s.Store.Update(object, "")
			}
			require.NoError(t, err)
		}
	}
	for _, r := range resources {
		Eventually(t, func() bool { return equal(s.Store.Get(r.Key()), r) }, "%s is stored", r.Key())
	}
}

// remove deletes the keys and waits until the store shows it.
func (s *subject) remove(t *testing.T, keys ...resource.Key) {
	t.Helper()
	if s.Apply != nil {
		s.Apply(nil, keys)
	} else {
		for _, key := range keys {
			require.NoError(t, s.Store.Delete(key, ""))
		}
	}
	for _, key := range keys {
		Eventually(t, func() bool { return s.Store.Get(key) == nil }, "%s is deleted", key)
	}
}

// requireVersion checks the version that a mutator returned for r.
func (s *subject) requireVersion(t *testing.T, r *resource.Resource, version string) {
	t.Helper()
	require.Equal(t, r.Version(), version)
}

func (s *subject) markSynced() {
	if s.MarkSynced != nil {
		s.MarkSynced()
	}
}

// run runs the store until the test ends, or until the function that it returns is called.
func (s *subject) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.Store.Run(ctx) })
	stop = func() {
		cancel()
		done.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// Eventually waits until cond holds, and fails the test if it never does.
func Eventually(t tb, cond func() bool, message string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: "+message, args...)
		}
		time.Sleep(time.Millisecond)
	}
}

// tb is what there is in common of testing.TB and the T of rapid.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}
