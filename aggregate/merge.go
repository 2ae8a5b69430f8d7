package aggregate

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// followed is a source of the configuration as the loop sees it.
type followed struct {
	*said
	synced bool
}

// merge does one round: it takes what the sources have changed since the last one and commits the outcome. It returns
// the channels that announce the next changes. It is called by the loop.
func (v *View) merge() (news []<-chan struct{}) {
	dirty := v.reconcile()
	for _, s := range v.sources {
		news = append(news, s.Reader.Changed()) // before the read, so that no commit slips between
		s.synced = s.Reader.Synced()            // before the read too: all of the first content is then part of it
		keys := s.pull()
		v.pool.take(s.said, keys)
		dirty = append(dirty, keys...)
	}
	complete := v.complete()
	if complete {
		dirty = append(dirty, v.dropFormers()...)
	}
	dirty = append(dirty, v.pool.commit()...)
	v.layers = v.stack()
	v.commit(dirty)
	if complete {
		v.table.MarkSynced()
	}
	return news
}

// reconcile makes the sources those that are wanted, and returns the keys whose winner may be another for that.
func (v *View) reconcile() []resource.Key {
	wanted := v.wanted.Load()
	if wanted == v.configured {
		return nil
	}
	v.configured = wanted

	removed := v.formers
	for _, s := range v.sources {
		removed = append(removed, s.said)
	}
	v.sources = nil
	for _, s := range *wanted {
		next := &followed{said: &said{Source: s}}
		if i := slices.IndexFunc(removed, func(o *said) bool { return o.Name == s.Name && o.Reader == s.Reader }); i >= 0 {
			next.snapshot = removed[i].snapshot
			removed = slices.Delete(removed, i, i+1)
		}
		v.sources = append(v.sources, next)
	}
	v.formers = removed
	v.pool.restart(v.voices())

	var keys []resource.Key
	for _, s := range v.voices() {
		keys = append(keys, s.keys()...)
	}
	return keys
}

// voice is a source that has a say.
type voice struct {
	*said
	former bool
}

// voices returns the sources and the former ones in order of precedence. A former one lies behind the one that replaces it,
// which has its name, or else last.
func (v *View) voices() (all []voice) {
	unreplaced := slices.Clone(v.formers)
	for _, s := range v.sources {
		all = append(all, voice{s.said, false})
		unreplaced = slices.DeleteFunc(unreplaced, func(f *said) bool {
			if f.Name == s.Name {
				all = append(all, voice{f, true})
			}
			return f.Name == s.Name
		})
	}
	for _, f := range unreplaced {
		all = append(all, voice{f, true})
	}
	return all
}

// dropFormers forgets the former sources, and returns the keys they had.
func (v *View) dropFormers() (keys []resource.Key) {
	for _, f := range v.formers {
		v.pool.drop(f)
		keys = append(keys, f.keys()...)
	}
	v.formers = nil
	return keys
}

// complete reports whether every required source is synced.
func (v *View) complete() bool {
	return !slices.ContainsFunc(v.sources, func(s *followed) bool { return !s.Optional && !s.synced })
}

// pull takes over what the source has changed, and returns the keys.
func (s *said) pull() []resource.Key {
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

func (s *said) keys() (keys []resource.Key) {
	for r := range s.snapshot.All() {
		keys = append(keys, r.Key())
	}
	return keys
}

// commit decides the winner of each key anew, publishes what it did so from, and commits the outcome: in this order, so
// that who is woken by the commit is never told less than what it says.
func (v *View) commit(dirty []resource.Key) {
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
	v.table.Apply(merged.puts, merged.deletes)
}

// resolve returns what the first layer that has key says of it, and what the second does that could have won.
func resolve(layers []layer, key resource.Key) (winner, loser *resource.Resource) {
	for _, l := range layers {
		r := l.get(key)
		switch {
		case r == nil:
		case winner == nil:
			winner = r
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
