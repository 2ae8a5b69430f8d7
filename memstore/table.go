package memstore

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tributary/resource"
)

// Table is the core of every store and of the aggregate's merged view: an ordered set of resources, changed by atomic
// commits, with a revision, a bounded log of changes, and a wake-up. It implements Reader. The zero value is empty and
// ready to use. All methods are safe for concurrent use; readers take no lock that a commit holds.
type Table struct {
	published atomic.Pointer[tableState] // nil until the first commit
	synced    atomic.Bool
	signal    signal

	mu    sync.Mutex // held during commits, and never during calls or wake-ups
	draft draft      // guarded by mu
}

// tableState is the result of one commit, published as one, so that a reader's keys and snapshot belong together.
type tableState struct {
	snapshot Snapshot
	log      changeLog
}

// Apply deletes, then puts, in one commit, in O(changed × log n), and returns the net changes and the state after them.
//
// It makes a commit only for a difference. A put that is resource.Equal to the stored resource but has another origin
// or creation time is a commit, too, so that mirrors follow; it is no event for handlers, which compare
// resource.Resource.Version. A put without a creation time gets that of the resource that it replaces. Of several puts
// of one key the last counts.
func (t *Table) Apply(puts []*resource.Resource, deletes []resource.Key) ([]Change, Snapshot) {
	t.mu.Lock()
	return t.finish(t.commit(time.Now(), puts, deletes, t.Snapshot().invalid))
}

// ApplyView is Apply and SetInvalid in one commit, for the store of a view: changedAt is the time of the first commit
// to its sources, see Snapshot.Since.
func (t *Table) ApplyView(changedAt time.Time, puts []*resource.Resource, deletes, invalid []resource.Key) Snapshot {
	t.mu.Lock()
	_, now := t.finish(t.commit(changedAt, puts, deletes, sorted(invalid)))
	return now
}

// SetInvalid replaces the keys of Snapshot.Invalid. It makes a commit only for a difference.
func (t *Table) SetInvalid(keys []resource.Key) {
	t.mu.Lock()
	t.finish(t.commit(time.Now(), nil, nil, sorted(keys)))
}

// finish releases mu and wakes readers after a commit.
func (t *Table) finish(changes []Change, now Snapshot, committed bool) ([]Change, Snapshot) {
	t.mu.Unlock()
	if committed {
		t.signal.raise()
	}
	return changes, now
}

// sorted returns the keys in order, each once.
func sorted(keys []resource.Key) []resource.Key {
	return slices.Compact(slices.SortedFunc(slices.Values(keys), resource.Key.Compare))
}

// CompareAndSwap replaces old, the very value that Get returned, by updated, of the same key, and reports whether it
// was still there. A nil old means absent; a nil updated means delete.
func (t *Table) CompareAndSwap(key resource.Key, old, updated *resource.Resource) bool {
	t.mu.Lock()
	if t.Snapshot().Get(key) != old {
		t.mu.Unlock()
		return false
	}
	puts, deletes := []*resource.Resource{updated}, []resource.Key(nil)
	if updated == nil {
		puts, deletes = nil, []resource.Key{key}
	}
	t.finish(t.commit(time.Now(), puts, deletes, t.Snapshot().invalid))
	return true
}

// MarkSynced says that the content is complete; everything applied before is part of it. It cannot be taken back.
func (t *Table) MarkSynced() {
	if t.synced.CompareAndSwap(false, true) {
		t.signal.raise()
	}
}

// Snapshot returns the state at this moment, in O(1).
func (t *Table) Snapshot() Snapshot { return t.load().snapshot }

// Changes returns the keys changed since a revision; see Reader.
func (t *Table) Changes(revision Revision) (keys []resource.Key, now Snapshot, ok bool) {
	state := t.load()
	if revision > state.snapshot.revision {
		return nil, state.snapshot, false
	}
	keys, ok = state.log.keysSince(revision)
	return keys, state.snapshot, ok
}

// Changed returns a channel that is closed by the next commit, or when Synced turns true.
func (t *Table) Changed() <-chan struct{} { return t.signal.wait() }

// Synced says that MarkSynced was called.
func (t *Table) Synced() bool { return t.synced.Load() }

func (t *Table) load() tableState {
	if state := t.published.Load(); state != nil {
		return *state
	}
	return tableState{}
}

// commit applies and publishes; committed reports whether there is a difference. The caller holds mu, and calls finish.
func (t *Table) commit(changedAt time.Time, puts []*resource.Resource, deletes, invalid []resource.Key) (
	changes []Change, now Snapshot, committed bool,
) {
	state := t.load()
	t.draft.begin(state.snapshot, len(puts)+len(deletes))
	for _, key := range deletes {
		t.draft.delete(key)
	}
	for _, r := range puts {
		t.draft.put(r)
	}
	changes, kinds := t.draft.end()
	if len(changes) == 0 && slices.Equal(invalid, state.snapshot.invalid) {
		return nil, state.snapshot, false
	}
	next := state.snapshot.revision + 1
	state.snapshot = Snapshot{next, state.snapshot.times.Append(uint64(next), changedAt), kinds, invalid}
	state.log.append(state.snapshot.revision, changes, state.snapshot.Len())
	t.published.Store(&state)
	return changes, state.snapshot, true
}

// draft is the unfinished next state of a table. Only copies of its trees are published, which cost O(1): a published
// tree never changes. Between commits the trees have the content of the snapshot.
type draft struct {
	trees []kindTree // ordered by kind

	// Of the current commit.
	base    Snapshot
	changes []Change
	index   map[resource.Key]int // where changes has a key
}

// begin starts a commit of at most size changes on top of base.
func (d *draft) begin(base Snapshot, size int) {
	d.base, d.changes, d.index = base, nil, make(map[resource.Key]int, size)
}

func (d *draft) put(object *resource.Resource) {
	key := object.Key()
	old := d.base.Get(key)
	if old != nil && object.Seen().IsZero() && !old.Seen().IsZero() {
		object = object.WithSeen(old.Seen())
	}
	if equalStored(old, object) {
		if _, changed := d.index[key]; !changed {
			return
		}
		object = old
	}
	d.treeOf(key.Kind).Set(rowOf(object))
	d.record(key, Change{Old: old, New: object})
}

func (d *draft) delete(key resource.Key) {
	old := d.base.Get(key)
	if old == nil {
		return
	}
	d.treeOf(key.Kind).Delete(row{namespace: key.Namespace, name: key.Name})
	d.record(key, Change{Old: old})
}

// end returns the net changes, without those that cancelled out, and the trees to publish.
func (d *draft) end() ([]Change, []kindTree) {
	changes := slices.DeleteFunc(d.changes, func(c Change) bool { return c.Old == c.New })
	kinds := slices.Clone(d.base.kinds)
	for _, c := range changes {
		kind := c.Key().Kind
		i, ok := findKind(kinds, kind)
		switch {
		case !ok:
			first, _ := findKind(d.trees, kind)
			d.trees[first].tree = packed(d.trees[first].tree)
			kinds = slices.Insert(kinds, i, kindTree{kind, d.treeOf(kind).Copy()})
		case kinds[i].tree == d.base.treeOf(kind): // not yet copied for an earlier change
			kinds[i].tree = d.treeOf(kind).Copy()
		}
	}
	d.base, d.changes, d.index = Snapshot{}, nil, nil // free memory until the next commit
	return changes, kinds
}

func (d *draft) treeOf(kind resource.Kind) *tree {
	i, ok := findKind(d.trees, kind)
	if !ok {
		d.trees = slices.Insert(d.trees, i, kindTree{kind, newTree()})
	}
	return d.trees[i].tree
}

// record notes the change of key by this commit, which replaces an earlier note.
func (d *draft) record(key resource.Key, change Change) {
	if i, ok := d.index[key]; ok {
		d.changes[i] = change
		return
	}
	d.index[key] = len(d.changes)
	d.changes = append(d.changes, change)
}

// equalStored reports whether two resources are equal in all that is stored.
func equalStored(a, b *resource.Resource) bool {
	return a == b || a != nil && b != nil &&
		resource.Equal(a, b) && resource.SameOrigin(a, b) && a.Seen().Equal(b.Seen())
}

// signal wakes waiting readers. A reader makes the channel, so that raising a signal without readers only costs a lock.
type signal struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu; nil without readers
}

// wait returns a channel that the next raise closes.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// raise wakes all readers.
func (s *signal) raise() {
	s.mu.Lock()
	ch := s.ch
	s.ch = nil
	s.mu.Unlock()
	if ch != nil {
		close(ch)
	}
}
