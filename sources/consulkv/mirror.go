package consulkv

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// mirror is what a store knows of the prefix: state that was read and, newer than that, what it wrote itself. It is not
// safe for concurrent use.
type mirror struct {
	table   *memstore.Table
	entries map[string]entry          // by key in Consul
	deleted map[string]uint64         // keys that this store deleted, with the index that they had
	holders map[resource.Key][]string // which keys have an object, in order: the first of them counts
	index   uint64                    // of the last listing
}

// entry is what a key holds.
type entry struct {
	index   uint64 // ModifyIndex: the resource version
	objects map[resource.Key]*resource.Resource
}

func newMirror(table *memstore.Table) *mirror {
	return &mirror{
		table: table, entries: make(map[string]entry), deleted: make(map[string]uint64), holders: make(map[resource.Key][]string),
	}
}

// take makes the mirror what a listing says, except for what was written after it. entryOf decodes the value at i.
func (m *mirror) take(l listing, entryOf func(i int) entry) {
	if l.Index < m.index && !l.reset {
		return // an older one, that was overtaken
	}
	if l.reset {
		clear(m.deleted)
	}
	m.index = l.Index
	changed := make(map[resource.Key]bool)
	seen := make(map[string]bool, len(l.pairs))
	for i, pair := range l.pairs {
		seen[pair.Key] = true
		index := m.entries[pair.Key].index
		if index == pair.ModifyIndex || index > pair.ModifyIndex && !l.reset || m.deleted[pair.Key] >= pair.ModifyIndex {
			continue
		}
		m.set(pair.Key, entryOf(i), changed)
	}
	for key, e := range m.entries {
		if !seen[key] && !l.held[key] && (e.index <= l.Index || l.reset) {
			m.set(key, entry{}, changed)
		}
	}
	for key := range l.held { // whatever is written there now is newer
		if e, ok := m.entries[key]; ok {
			e.index = 0
			m.entries[key] = e
		}
	}
	for key := range m.deleted {
		if !seen[key] {
			delete(m.deleted, key)
		}
	}
	m.publish(changed)
}

// note takes up one key that was read or written.
func (m *mirror) note(key string, e entry) {
	if m.entries[key].index >= e.index || m.deleted[key] >= e.index {
		return
	}
	changed := make(map[resource.Key]bool)
	m.set(key, e, changed)
	m.publish(changed)
}

// noteAbsent takes up that a key was not there at an index.
func (m *mirror) noteAbsent(key string, at uint64) {
	if e, ok := m.entries[key]; ok && e.index <= at {
		changed := make(map[resource.Key]bool)
		m.set(key, entry{}, changed)
		m.publish(changed)
	}
}

// noteDeleted takes up that this store deleted a key when it had an index.
func (m *mirror) noteDeleted(key string, index uint64) {
	m.deleted[key] = max(m.deleted[key], index)
	m.noteAbsent(key, index)
}

// set replaces what a key holds; without objects and index, nothing. It adds the objects concerned to changed.
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

// publish makes the table follow, in one commit.
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

// home returns the key that holds an object, or nothing.
func (m *mirror) home(object resource.Key) string {
	if holders := m.holders[object]; len(holders) > 0 {
		return holders[0]
	}
	return ""
}
