package aggregate

import (
	"slices"
	"sync"
	"time"

	"tributary/internal/recent"
	"tributary/memstore"
	"tributary/resource"
)

// followed is a source of the configuration as the loop sees it.
type followed struct {
	*sourceState
	synced bool
}

// read reports whether nothing more is to be expected of the source before what it says counts.
func (s *followed) read() bool { return s.synced || s.Optional }

// merge does one round: it takes what the sources have changed since the last one and commits the outcome. It returns
// the channels that announce the next changes. It is called by the loop.
func (v *View) merge() (news []<-chan struct{}) {
	dirty := v.reconcile()
	since := time.Time{}
	for i, s := range v.sources {
		news = append(news, s.Reader.Changed()) // before the read, so that no commit slips between
		synced := s.Reader.Synced()             // before the read too: all of the first content is then part of it
		before := s.snapshot
		keys := s.pull()
		since = recent.Earlier(since, s.snapshot.Since(before.Revision()))
		v.pool.take(s.sourceState, keys)
		v.followUp(before, s, v.place(i), keys)
		dirty = append(dirty, keys...)
		if synced && !s.synced {
			s.synced = true
			dirty = append(dirty, v.decided(s)...)
		}
	}
	complete := v.complete()
	if complete {
		dirty = append(dirty, v.forgetEarlier()...)
	}
	dirty = append(dirty, v.pool.commit()...)
	v.layers = v.stack()
	v.commit(dirty, recent.Earlier(since, time.Now()))
	if complete {
		v.table.MarkSynced()
		v.alone.Do(func() { close(v.configured.alone) })
	}
	return news
}

// reconcile makes the sources those that are wanted, and returns the keys whose winner may be another for that.
func (v *View) reconcile() []resource.Key {
	wanted := v.wanted.Load()
	if wanted == v.configured {
		return nil
	}
	v.configured, v.alone = wanted, new(sync.Once)

	var keys []resource.Key
	for _, s := range v.withRetired() {
		keys = append(keys, s.keys()...)
	}
	old, left := v.sources, v.states()
	v.sources = nil
	for _, s := range wanted.sources {
		next := &followed{sourceState: &sourceState{Source: s}}
		if i := slices.IndexFunc(left, func(o *sourceState) bool { return o.Reader == s.Reader }); i >= 0 {
			next.snapshot = left[i].snapshot
			left = slices.Delete(left, i, i+1)
		}
		next.synced = s.Reader.Synced() // before it is read, as always
		v.sources = append(v.sources, next)
	}
	v.retire(left, old)
	keys = append(keys, v.remember()...)
	keys = append(keys, keysOf(v.pool.snapshot)...) // the place of the pool may be another
	v.pool.restart(v.withRetired())
	for _, s := range v.sources {
		keys = append(keys, s.keys()...)
	}
	return keys
}

// remember keeps what is served if not all of the new configuration is read. It
// returns its keys and those of what was remembered before. What the pool made is with the pool, as long as that is made of
// anything, since it knows which endpoints come and go; what it had fills the gaps, for what a source that is merged no longer
// has taken along.
func (v *View) remember() (keys []resource.Key) {
	if v.earlier != nil {
		keys = append(keysOf(v.earlier.Snapshot()), keysOf(v.pooled)...)
	}
	v.earlier, v.pooled = nil, memstore.Snapshot{}
	if v.complete() {
		return keys
	}
	pooled := slices.ContainsFunc(v.sources, func(s *followed) bool { return s.Merge != nil })
	var puts []*resource.Resource
	for r := range v.table.Snapshot().All() {
		if pooled && servedAs(v.pool.snapshot.Get(r.Key()), r) {
			continue
		}
		puts = append(puts, r)
	}
	if pooled {
		v.pooled = v.pool.snapshot
	}
	v.earlier = new(memstore.Table)
	v.earlier.Apply(puts, nil)
	return append(keys, keysOf(v.earlier.Snapshot())...)
}

// followUp applies the changes of a source to what was served earlier, where that came from this source.
// What is new gets the rank of its place now. A source that is read for the first time changes nothing of it: what it lacks may be another
// one's, which is not read yet.
func (v *View) followUp(before memstore.Snapshot, s *followed, place int, keys []resource.Key) {
	if v.earlier == nil || !s.synced {
		return
	}
	served := v.earlier.Snapshot()
	var next batch
	for _, key := range keys {
		if !servedAs(before.Get(key), served.Get(key)) {
			continue
		}
		next.set(key, rank(s.snapshot.Get(key), place))
	}
	v.earlier.Apply(next.puts, next.deletes)
}

// servedAs reports whether an object of a source or of the pool is the one that was served, apart from the rank.
func servedAs(r, served *resource.Resource) bool {
	return r != nil && served != nil && resource.Equal(r.Unranked(), served.Unranked()) && resource.SameOrigin(r, served)
}

// decided returns the keys of which the winner may be another now that s is read.
func (v *View) decided(s *followed) []resource.Key {
	if v.earlier == nil {
		return nil
	}
	return append(keysOf(v.earlier.Snapshot()), s.keys()...)
}

// forgetEarlier drops what was served earlier and the retired sources, and returns their keys.
func (v *View) forgetEarlier() (keys []resource.Key) {
	if v.earlier != nil {
		keys = append(keysOf(v.earlier.Snapshot()), keysOf(v.pooled)...)
		v.earlier, v.pooled = nil, memstore.Snapshot{}
	}
	for _, f := range v.retired {
		v.pool.drop(f)
		keys = append(keys, f.keys()...)
	}
	v.retired = nil
	clear(v.hadObjects)
	return keys
}

// complete reports whether every required source is synced.
func (v *View) complete() bool {
	return !slices.ContainsFunc(v.sources, func(s *followed) bool { return !s.read() })
}

// pull takes over what the source has changed, and returns the keys.
func (s *sourceState) pull() []resource.Key {
	keys, now, ok := s.Reader.Changes(s.snapshot.Revision())
	if !ok {
		keys = nil
		for c := range memstore.Diff(s.snapshot, now) {
			keys = append(keys, c.Key())
		}
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

// commit decides the winner of each key anew, publishes what it did so from, and commits the outcome: in this order, so
// that who is woken by the commit is never told less than what it says. It is for something that came about at since.
func (v *View) commit(dirty []resource.Key, since time.Time) {
	slices.SortFunc(dirty, resource.Key.Compare)
	var merged, shadowed batch
	for _, key := range slices.Compact(dirty) {
		winner, loser := resolve(v.layers, key)
		merged.set(key, winner)
		shadowed.set(key, loser)
	}
	next := &state{layers: v.layers, sources: v.status()}
	_, next.shadowed = v.shadowed.Apply(shadowed.puts, shadowed.deletes)
	v.published.Store(next)
	v.table.ApplySince(since, merged.puts, merged.deletes)
}

// resolve returns what the first layer that has key says of it, as it is served, and what the second does that could have won.
func resolve(layers []layer, key resource.Key) (winner, loser *resource.Resource) {
	for _, l := range layers {
		r := l.get(key)
		switch {
		case r == nil:
		case winner == nil:
			winner = l.rank(r)
		case !l.fills():
			return winner, r
		}
	}
	return winner, nil
}

// batch is a commit in the making.
type batch struct {
	puts    []*resource.Resource
	deletes []resource.Key
}

// set puts r, or deletes key if r is nil.
func (b *batch) set(key resource.Key, r *resource.Resource) {
	if r == nil {
		b.deletes = append(b.deletes, key)
	} else {
		b.puts = append(b.puts, r)
	}
}
