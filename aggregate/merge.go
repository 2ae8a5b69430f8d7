package aggregate

import (
	"slices"
	"time"

	"tributary/internal/recent"
	"tributary/memstore"
	"tributary/resource"
)

// merge does one round: it takes the sources' changes since the last one and commits the outcome. It returns the
// channels that announce the next changes. It is called by the loop.
func (v *View) merge() (changes []<-chan struct{}) {
	dirty := v.reconcile()
	changedAt := time.Time{}
	for i, source := range v.sources {
		// Both before the read: so no commit slips between, and a synced source is read with all of its first content.
		changes = append(changes, source.Reader.Changed())
		synced := source.Reader.Synced()
		before := source.snapshot
		keys := source.pull()
		changedAt = recent.Earlier(changedAt, source.snapshot.Since(before.Revision()))
		v.pool.update(source, keys)
		v.transition.followSource(before, source, v.rankAt(i), keys)
		dirty = append(dirty, keys...)
		if synced && !source.synced {
			source.synced = true
			if v.transition.frozen != nil { // these keys may get another winner now that the source is read
				dirty = append(dirty, keysOf(v.transition.frozen.Snapshot())...)
				dirty = append(dirty, source.keys()...)
			}
		}
	}
	complete := v.complete()
	if complete {
		dirty = append(dirty, v.transition.end(&v.pool)...)
	}
	dirty = append(dirty, v.pool.commit()...)
	v.layers = v.stack()
	v.commit(dirty, recent.Earlier(changedAt, time.Now()))
	if complete {
		v.table.MarkSynced()
		v.configured.markSwitched()
	}
	return changes
}

// reconcile switches to the sources of the last SetSources, and returns the keys that may get another winner.
func (v *View) reconcile() []resource.Key {
	wanted := v.wanted.Load()
	if wanted == v.configured {
		return nil
	}
	v.configured = wanted

	var keys []resource.Key
	for _, s := range v.withRetired() {
		keys = append(keys, s.keys()...)
	}
	remaining := v.unreplaced()
	for _, s := range v.sources {
		if s.synced { // it replaced retired sources of its name
			delete(v.transition.namesRetired, s.Name)
		}
	}
	v.sources = nil
	for _, source := range wanted.sources {
		next := &sourceState{Source: source}
		if i := slices.IndexFunc(remaining, func(o *sourceState) bool { return o.Reader == source.Reader }); i >= 0 {
			next.snapshot = remaining[i].snapshot
			remaining = slices.Delete(remaining, i, i+1)
		}
		next.synced = source.Reader.Synced() // before the source is read, as in merge
		v.sources = append(v.sources, next)
	}
	v.transition.retire(remaining)
	keys = append(keys, v.freezeServed()...)
	keys = append(keys, keysOf(v.pool.snapshot)...) // the pool's rank may change
	v.pool.restart(v.withRetired())
	for _, s := range v.sources {
		keys = append(keys, s.keys()...)
	}
	return keys
}

// freezeServed keeps the served content until all new sources are read, and returns the affected keys.
func (v *View) freezeServed() []resource.Key {
	keys := v.transition.keys()
	v.transition.unfreeze()
	if v.complete() {
		return keys
	}
	var pool memstore.Snapshot
	if slices.ContainsFunc(v.sources, func(s *sourceState) bool { return s.Merge != nil }) {
		pool = v.pool.snapshot
	}
	return append(keys, v.transition.freeze(v.table.Snapshot(), pool)...)
}

// complete reports whether all sources are ready.
func (v *View) complete() bool {
	return !slices.ContainsFunc(v.sources, func(s *sourceState) bool { return !s.ready() })
}

// pull takes over the source's changes, and returns their keys.
func (s *sourceState) pull() (keys []resource.Key) {
	changes, now := memstore.ChangesFrom(s.Reader, s.snapshot)
	for c := range changes {
		keys = append(keys, c.Key())
	}
	s.snapshot = now
	return keys
}

func (s *sourceState) keys() []resource.Key { return keysOf(s.snapshot) }

func keysOf(s memstore.Snapshot) (keys []resource.Key) {
	for r := range s.All() {
		keys = append(keys, r.Key())
	}
	return keys
}

// commit decides the winner of each key again, publishes the layers and then commits, so that a reader woken by the
// commit finds its layers published. The changes happened at changedAt.
func (v *View) commit(dirty []resource.Key, changedAt time.Time) {
	slices.SortFunc(dirty, resource.Key.Compare)
	var winners, losers batch
	for _, key := range slices.Compact(dirty) {
		winner, loser := resolve(v.layers, key)
		winners.set(key, winner)
		losers.set(key, loser)
	}
	next := &state{layers: v.layers, sources: v.status()}
	_, next.shadowed = v.shadowed.Apply(losers.puts, losers.deletes)
	v.published.Store(next)
	v.table.ApplyView(changedAt, winners.puts, winners.deletes, v.invalid())
}

// invalid returns the keys of all sources without a valid version. A retired source counts until its successor is read.
func (v *View) invalid() (keys []resource.Key) {
	read := make(map[string]bool)
	for _, s := range v.sources {
		keys = append(keys, s.snapshot.Invalid()...)
		read[s.Name] = s.synced
	}
	for _, s := range v.transition.retired {
		if !read[s.Name] {
			keys = append(keys, s.snapshot.Invalid()...)
		}
	}
	return keys
}

// resolve returns the served object of key, from the first layer that has the key, and the object of the next such
// layer that is no fallback.
func resolve(layers []layer, key resource.Key) (winner, loser *resource.Resource) {
	for layer, object := range layersWith(layers, key) {
		if winner != nil {
			return winner, object
		}
		winner = ranked(object, layer.rank)
	}
	return winner, nil
}

// batch is a commit in the making.
type batch struct {
	puts    []*resource.Resource
	deletes []resource.Key
}

// set puts object, or deletes key if object is nil.
func (b *batch) set(key resource.Key, object *resource.Resource) {
	if object == nil {
		b.deletes = append(b.deletes, key)
	} else {
		b.puts = append(b.puts, object)
	}
}
