package consulkv

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/internal/worker"
	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// Store is a ConfigStoreController with objects in Consul, where several programs can write at the same time: the
// slower one gets a conflict. The version of an object is the ModifyIndex of its key.
//
// Reads use a local copy. Before the first one, either Run must have synced or Refresh been called. Mutators read and
// write Consul itself, and reads show their effect at once.
type Store struct {
	*memstore.Controller // reads and handlers
	table                *memstore.Table
	place                *place

	mu     sync.Mutex // never held during requests to Consul
	mirror *mirror
}

var _ memstore.ConfigStoreController = (*Store)(nil)

// Open returns the store at address, "consul-kv://host:port/prefix", without reading it. An error begins with the key
// or variable at fault.
func Open(address string, settings Settings) (*Store, error) {
	p, err := newPlace(address, settings)
	if err != nil {
		return nil, err
	}
	table := new(memstore.Table)
	return &Store{Controller: memstore.NewController(table), table: table, place: p, mirror: newMirror(table)}, nil
}

// String names the store in messages.
func (s *Store) String() string { return s.place.shown + " prefix " + s.place.prefix }

// Reader returns the store for servers.
func (s *Store) Reader() memstore.Reader { return s.table }

// Close closes idle connections.
func (s *Store) Close() { s.place.client.Close() }

// Run follows Consul and calls handlers until ctx ends. Failures go to the watch error handler; the last objects stay.
func (s *Store) Run(ctx context.Context) {
	watch, ctx := worker.New(ctx)
	defer s.Close()
	defer watch.Stop()
	watch.Go(func() {
		_ = s.place.follow(ctx, newMemory(s.place.resetHold), follower{
			took:   s.take,
			failed: func(err error) { s.ReportError(errors.New(s.place.stateOf(err).Message)) },
			felt:   func(dial.Pulse) {},
		})
	})
	s.Controller.Run(ctx)
	watch.Stop()
	if err := watch.Wait(); err != nil {
		s.ReportError(err)
	}
}

// Refresh reads all keys, for callers that do not Run the store.
func (s *Store) Refresh(ctx context.Context) error {
	s.mu.Lock()
	before := s.mirror.index
	s.mu.Unlock()
	l, err := s.place.list(ctx, confirmed)
	switch {
	case err != nil || len(l.pairs) > 0:
	case judge.Judge(judge.Compared{}, l.Answer) == judge.Foreign:
		err = dial.ErrForeign
	default:
		err = s.place.mayRead(ctx, l.Anonymous, nil)
	}
	if err != nil {
		return errors.New(s.place.stateOf(err).Message)
	}
	l.reset = l.Index < before // it was requested afterwards, so it is not older
	s.take(l)
	return nil
}

// take applies a listing.
func (s *Store) take(l listing) {
	if h := s.place.healthOf(l); h.State != sources.Healthy {
		s.ReportError(errors.New(h.Message))
	}
	s.mu.Lock()
	s.mirror.take(l, s.place.entryOf)
	s.mu.Unlock()
	s.table.MarkSynced()
}

// entryOf decodes the value of a key.
func (p *place) entryOf(pair *api.KVPair) entry {
	c := p.parse(pair.Key, pair.Value)
	e := entry{index: pair.ModifyIndex, objects: make(map[resource.Key]*resource.Resource), rejects: c.Rejects}
	for _, r := range c.Resources {
		if _, taken := e.objects[r.Key()]; !taken { // the first one counts
			e.objects[r.Key()] = r
		}
	}
	return e
}

// Rejects returns the objects of the store that cannot be decoded.
func (s *Store) Rejects() (rejects []sources.Reject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.mirror.entries {
		rejects = append(rejects, e.rejects...)
	}
	return rejects
}

// Version returns the version of an object, for Update and Delete; empty without one.
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
	return s.change("create", r.Key(), func(old *resource.Resource, _ string) (*resource.Resource, error) {
		if old != nil {
			return nil, memstore.ErrExists
		}
		if r.Created().IsZero() {
			return r.WithCreated(time.Now().UTC().Truncate(time.Second)), nil
		}
		return r, nil
	})
}

// Update replaces the resource of r's key, and fails with ErrNotFound if there is none and with ErrConflict if its
// version is not ifVersion. An equal resource is not written.
func (s *Store) Update(r *resource.Resource, ifVersion string) (string, error) {
	return s.change("update", r.Key(), func(old *resource.Resource, version string) (*resource.Resource, error) {
		return r, memstore.Expect(old, version, ifVersion)
	})
}

// Patch replaces the resource of key by the result of edit. After another write, it calls edit again with the newer
// resource.
func (s *Store) Patch(key resource.Key, edit func(*resource.Resource) (*resource.Resource, error)) (string, error) {
	return s.change("patch", key, func(old *resource.Resource, version string) (*resource.Resource, error) {
		if err := memstore.Expect(old, version, ""); err != nil {
			return nil, err
		}
		return memstore.Edited(old, edit)
	})
}

// Delete removes the resource of key, under the same conditions as Update, from all keys of Consul: a hidden one with
// that key must not replace it.
func (s *Store) Delete(key resource.Key, ifVersion string) error {
	for {
		_, err := s.change("delete", key, func(old *resource.Resource, version string) (*resource.Resource, error) {
			return nil, memstore.Expect(old, version, ifVersion)
		})
		if err != nil || s.Get(key) == nil {
			return err
		}
		ifVersion = s.Version(key)
	}
}

// mirror is the local copy of the prefix: the last listing, and newer writes of the store itself. It is not safe for
// concurrent use.
type mirror struct {
	table   *memstore.Table
	entries map[string]entry          // by key in Consul
	deleted map[string]uint64         // keys that this store deleted, with their index
	holders map[resource.Key][]string // keys with an object, in order: the first one counts
	index   uint64                    // of the last listing
}

// entry is the decoded value of a key.
type entry struct {
	index   uint64 // ModifyIndex: the resource version
	objects map[resource.Key]*resource.Resource
	rejects []sources.Reject
}

func newMirror(table *memstore.Table) *mirror {
	return &mirror{
		table: table, entries: make(map[string]entry), deleted: make(map[string]uint64),
		holders: make(map[resource.Key][]string),
	}
}

// take applies a listing, except for keys that were written after it. entryOf decodes the value of a key.
func (m *mirror) take(l listing, entryOf func(*api.KVPair) entry) {
	if l.Index < m.index && !l.reset {
		return // a newer one was applied
	}
	if l.reset {
		clear(m.deleted)
	}
	m.index = l.Index
	changed := make(map[resource.Key]bool)
	seen := make(map[string]bool, len(l.pairs))
	for _, pair := range l.pairs {
		seen[pair.Key] = true
		index := m.entries[pair.Key].index
		if index == pair.ModifyIndex || index > pair.ModifyIndex && !l.reset || m.deleted[pair.Key] >= pair.ModifyIndex {
			continue
		}
		m.set(pair.Key, entryOf(pair), changed)
	}
	for key := range m.deleted {
		if !seen[key] {
			delete(m.deleted, key)
		}
	}
	for _, key := range l.held { // a current value of such a key is newer
		seen[key] = true
		if e, ok := m.entries[key]; ok {
			e.index = 0
			m.entries[key] = e
		}
	}
	for key, e := range m.entries {
		if !seen[key] && (e.index <= l.Index || l.reset) {
			m.set(key, entry{}, changed)
		}
	}
	m.publish(changed)
}

// note applies one key that was read or written.
func (m *mirror) note(key string, e entry) {
	if m.entries[key].index < e.index && m.deleted[key] < e.index {
		m.replace(key, e)
	}
}

// noteAbsent notes that a key did not exist at an index.
func (m *mirror) noteAbsent(key string, at uint64) {
	if e, ok := m.entries[key]; ok && e.index <= at {
		m.replace(key, entry{})
	}
}

// noteDeleted notes that this store deleted a key of an index.
func (m *mirror) noteDeleted(key string, index uint64) {
	m.deleted[key] = max(m.deleted[key], index)
	m.noteAbsent(key, index)
}

func (m *mirror) replace(key string, e entry) {
	changed := make(map[resource.Key]bool)
	m.set(key, e, changed)
	m.publish(changed)
}

// set replaces the value of a key; without objects and index, it removes the key. It adds the affected objects to
// changed.
func (m *mirror) set(key string, e entry, changed map[resource.Key]bool) {
	for object := range m.entries[key].objects {
		changed[object] = true
		m.holders[object] = slices.DeleteFunc(m.holders[object], func(k string) bool { return k == key })
		if len(m.holders[object]) == 0 {
			delete(m.holders, object)
		}
	}
	if e.index == 0 {
		delete(m.entries, key)
		return
	}
	m.entries[key] = e
	delete(m.deleted, key)
	for object := range e.objects {
		changed[object] = true
		holders := append(m.holders[object], key)
		slices.Sort(holders)
		m.holders[object] = holders
	}
}

// publish updates the table in one commit.
func (m *mirror) publish(changed map[resource.Key]bool) {
	var puts []*resource.Resource
	var deletes []resource.Key
	for object := range changed {
		if holders := m.holders[object]; len(holders) > 0 {
			puts = append(puts, m.entries[holders[0]].objects[object])
		} else {
			deletes = append(deletes, object)
		}
	}
	m.table.Apply(puts, deletes)
}

// home returns the key of an object; empty without one.
func (m *mirror) home(object resource.Key) string {
	if holders := m.holders[object]; len(holders) > 0 {
		return holders[0]
	}
	return ""
}
