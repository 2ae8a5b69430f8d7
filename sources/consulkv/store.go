package consulkv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/judge"
)

// Store is a ConfigStoreController that keeps its objects in Consul, where several programs can write at the same time:
// whoever was slower is told so. The version of an object is the ModifyIndex of its key.
//
// Reads are of what is known here. Before the first one, either Run must have synced or Refresh been called. Mutators read
// and write Consul itself, and reads show their effect at once.
type Store struct {
	*memstore.Controller // reads and handlers
	table                *memstore.Table
	place                *place

	mu      sync.Mutex // never held while Consul is asked
	mirror  *mirror
	rejects map[string][]sources.Reject // by key
	listed  bool                        // everything has been read once
}

var _ memstore.ConfigStoreController = (*Store)(nil)

// Open returns the store at address, "consul-kv://host:port/prefix". Nothing is read yet. An error begins with the key or
// variable at fault.
func Open(address string, settings Settings) (*Store, error) {
	p, err := newPlace(address, settings)
	if err != nil {
		return nil, err
	}
	table := new(memstore.Table)
	return &Store{
		Controller: memstore.NewController(table), table: table, place: p,
		mirror: newMirror(table), rejects: make(map[string][]sources.Reject),
	}, nil
}

// String names the store in messages.
func (s *Store) String() string { return s.place.shown + " prefix " + s.place.prefix }

// Reader returns the store as servers read it.
func (s *Store) Reader() memstore.Reader { return s.table }

// Close closes the connections that nobody uses.
func (s *Store) Close() { s.place.client.Close() }

// Run follows Consul and calls handlers until ctx ends. What fails is told to the watch error handler; what was read stays.
func (s *Store) Run(ctx context.Context) {
	watch, ctx := worker.New(ctx)
	defer s.Close()
	defer watch.Stop()
	watch.Go(func() {
		_ = s.place.follow(ctx, newMemory(s.place.resetHold), follower{
			took:   s.take,
			failed: func(err error) { s.ReportError(errors.New(s.place.stateOf(err).Message)) },
			felt:   func(pulse) {},
		})
	})
	s.Controller.Run(ctx)
	watch.Stop()
	if err := watch.Wait(); err != nil {
		s.ReportError(err)
	}
}

// Refresh reads everything, for those who do not Run the store.
func (s *Store) Refresh(ctx context.Context) error {
	s.mu.Lock()
	before := s.mirror.index
	s.mu.Unlock()
	l, err := s.place.all(ctx)
	if err == nil && len(l.pairs) == 0 {
		if c, _ := newMemory(s.place.resetHold).compare(l, false); judge.Judge(c, l.Answer) == judge.Foreign {
			err = errForeign
		} else {
			err = s.place.mayRead(ctx, l.anonymous, nil)
		}
	}
	if err != nil {
		return errors.New(s.place.stateOf(err).Message)
	}
	l.reset = l.Index < before // it was asked for after that, and so it is not older
	s.take(l)
	return nil
}

// take takes up a listing.
func (s *Store) take(l listing) {
	if h := s.place.healthOf(l); h.State != sources.Healthy {
		s.ReportError(errors.New(h.Message))
	}
	s.mu.Lock()
	s.mirror.take(l, func(i int) entry { return s.entryOf(l.pairs[i].Key, l.pairs[i].Value, l.pairs[i].ModifyIndex) })
	s.listed = true
	s.mu.Unlock()
	s.table.MarkSynced()
}

// entryOf decodes a value. The caller holds mu.
func (s *Store) entryOf(key string, value []byte, index uint64) entry {
	c := s.place.parse(key, value)
	s.rejects[key] = c.Rejects
	e := entry{index: index, objects: make(map[resource.Key]*resource.Resource)}
	for _, r := range c.Resources {
		if _, taken := e.objects[r.Key()]; !taken { // the first counts
			e.objects[r.Key()] = r
		}
	}
	return e
}

// Rejects are what could not be understood of what is in the store.
func (s *Store) Rejects() (all []sources.Reject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, rejects := range s.rejects {
		if _, there := s.mirror.entries[key]; there {
			all = append(all, rejects...)
		}
	}
	return all
}

// Version returns the version of the object of key, for Update and Delete, or nothing if it is not there.
func (s *Store) Version(key resource.Key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if home := s.mirror.home(key); home != "" {
		return versionOf(s.mirror.entries[home].index)
	}
	return ""
}

func versionOf(index uint64) string { return strconv.FormatUint(index, 10) }

// Create adds r, and fails with ErrExists if its key is taken. It returns the version stored.
func (s *Store) Create(r *resource.Resource) (string, error) {
	version, err := s.change(r.Key(), func(old *resource.Resource, _ string) (*resource.Resource, error) {
		if old != nil {
			return nil, memstore.ErrExists
		}
		if r.Created().IsZero() {
			return r.WithCreated(time.Now().UTC().Truncate(time.Second)), nil
		}
		return r, nil
	})
	if err != nil {
		return "", fmt.Errorf("create %s: %w", r.Key(), err)
	}
	return version, nil
}

// Update replaces the resource of r's key, and fails with ErrNotFound if there is none and with ErrConflict if its version
// is not ifVersion. An equal resource is not written.
func (s *Store) Update(r *resource.Resource, ifVersion string) (string, error) {
	version, err := s.change(r.Key(), func(old *resource.Resource, version string) (*resource.Resource, error) {
		return r, memstore.Expect(old, version, ifVersion)
	})
	if err != nil {
		return "", fmt.Errorf("update %s: %w", r.Key(), err)
	}
	return version, nil
}

// Patch replaces the resource of key by what edit makes of it. If another write comes between, edit is called again with
// the newer resource.
func (s *Store) Patch(key resource.Key, edit func(*resource.Resource) (*resource.Resource, error)) (string, error) {
	version, err := s.change(key, func(old *resource.Resource, version string) (*resource.Resource, error) {
		if err := memstore.Expect(old, version, ""); err != nil {
			return nil, err
		}
		return memstore.Edited(old, edit)
	})
	if err != nil {
		return "", fmt.Errorf("patch %s: %w", key, err)
	}
	return version, nil
}

// Delete removes the resource of key, under the same conditions as Update, wherever it is: another one with the key, which
// the first hid, must not take its place.
func (s *Store) Delete(key resource.Key, ifVersion string) error {
	for {
		_, err := s.change(key, func(old *resource.Resource, version string) (*resource.Resource, error) {
			return nil, memstore.Expect(old, version, ifVersion)
		})
		if err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		if s.Get(key) == nil {
			return nil
		}
		ifVersion = s.Version(key)
	}
}

// served reports whether the store takes objects of kind.
func (s *Store) served(kind resource.Kind) bool {
	return slices.ContainsFunc(s.Schemas(), func(schema *resource.Schema) bool { return schema.Kind == kind })
}
