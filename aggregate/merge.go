package aggregate

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// input is a source as the loop sees it.
type input struct {
	Source
	snapshot memstore.Snapshot // what of it is merged
	synced   bool
	// retiring says that the source was removed while required sources of the new set are not synced. What it last said is
	// served until they are, so that replacing a source withdraws nothing in between.
	retiring bool

	pooled bool // it is the pool, and not one of the sources
	rank   int  // of those in the pool, their order
}

// get returns what is to be merged of key, or nil. The ServiceEntries of a source that has them merged by host are not its
// own to say: the pool has them.
func (in *input) get(key resource.Key) *resource.Resource {
	if in.Merge != nil && key.Kind == resource.ServiceEntry {
		return nil
	}
	return in.snapshot.Get(key)
}

// merge does one round: it takes what the sources have changed since the last one and commits the outcome. It returns
// the channels that announce the next changes. It is called by the loop.
func (v *View) merge() (news []<-chan struct{}) {
	dirty := v.reconcile()
	for _, in := range v.inputs {
		if in.retiring || in.pooled {
			continue
		}
		news = append(news, in.Reader.Changed()) // before the read, so that no commit slips between
		in.synced = in.Reader.Synced()           // before the read too: all of the first content is then part of it
		keys := in.pull()
		v.pool.take(in, keys)
		dirty = append(dirty, keys...)
	}
	complete := v.complete()
	if complete {
		dirty = append(dirty, v.dropRetiring()...)
	}
	dirty = append(dirty, v.pool.commit()...)
	v.commit(dirty)
	if complete {
		v.table.MarkSynced()
	}
	return news
}

// reconcile makes the inputs those that are wanted, and returns the keys whose winner may be another for that.
func (v *View) reconcile() []resource.Key {
	wanted := v.wanted.Load()
	if wanted == v.configured {
		return nil
	}
	v.configured = wanted

	removed := slices.DeleteFunc(slices.Clone(v.inputs), func(in *input) bool { return in.pooled })
	v.inputs = nil
	for _, s := range *wanted {
		in := &input{Source: s}
		if i := slices.IndexFunc(removed, func(o *input) bool { return o.Name == s.Name && o.Reader == s.Reader }); i >= 0 {
			in = removed[i]
			in.Source, in.retiring = s, false
			removed = slices.Delete(removed, i, i+1)
		}
		v.inputs = append(v.inputs, in)
	}
	for _, in := range removed {
		in.retiring = true
		v.inputs = slices.Insert(v.inputs, v.placeOfRetiring(in), in)
	}
	v.inputs = v.pool.restart(v.inputs)
	return allKeys(v.inputs)
}

// placeOfRetiring returns where a removed input goes: behind the one that replaces it, which has its name, or else last.
func (v *View) placeOfRetiring(in *input) int {
	if i := slices.IndexFunc(v.inputs, func(o *input) bool { return o.Name == in.Name }); i >= 0 {
		return i + 1
	}
	return len(v.inputs)
}

// dropRetiring forgets the retiring inputs, and returns the keys they had.
func (v *View) dropRetiring() []resource.Key {
	var gone []*input
	v.inputs = slices.DeleteFunc(v.inputs, func(in *input) bool {
		if in.retiring {
			gone = append(gone, in)
			v.pool.drop(in)
		}
		return in.retiring
	})
	return allKeys(gone)
}

// complete reports whether every required source is synced.
func (v *View) complete() bool {
	return !slices.ContainsFunc(v.inputs, func(in *input) bool { return !in.retiring && !in.Optional && !in.synced })
}

// pull takes over what the source has changed, and returns the keys.
func (in *input) pull() []resource.Key {
	keys, now, ok := in.Reader.Changes(in.snapshot.Revision())
	if !ok {
		keys = nil
		for c := range memstore.Diff(in.snapshot, now) {
			keys = append(keys, c.Key())
		}
	}
	in.snapshot = now
	return keys
}

// commit decides the winner of each key anew, publishes what it did so from, and commits the outcome: in this order, so
// that who is woken by the commit is never told less than what it says.
func (v *View) commit(dirty []resource.Key) {
	slices.SortFunc(dirty, resource.Key.Compare)
	var merged, shadowed batch
	for _, key := range slices.Compact(dirty) {
		winner, loser := v.resolve(key)
		merged.set(key, winner)
		shadowed.set(key, loser)
	}
	next := new(state)
	_, next.shadowed = v.shadowed.Apply(shadowed.puts, shadowed.deletes)
	for _, in := range v.inputs {
		next.inputs = append(next.inputs, *in)
	}
	v.published.Store(next)
	v.table.Apply(merged.puts, merged.deletes)
}

// resolve returns what the first and the second source that have key say of it. A retiring source is never a loser: it
// is there only to fill gaps.
func (v *View) resolve(key resource.Key) (winner, loser *resource.Resource) {
	for _, in := range v.inputs {
		r := in.get(key)
		switch {
		case r == nil:
		case winner == nil:
			winner = r
		case !in.retiring:
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

func allKeys(inputs []*input) (keys []resource.Key) {
	for _, in := range inputs {
		for r := range in.snapshot.All() {
			keys = append(keys, r.Key())
		}
	}
	return keys
}
