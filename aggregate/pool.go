package aggregate

import (
	"cmp"
	"slices"
	"sync"

	"tributary/memstore"
	"tributary/resource"
)

// pool merges the ServiceEntries of the sources that are to be merged, and is to the view one more layer, before the
// first of them. Their other objects stay with the sources. One change costs as much as the entries of its hosts.
type pool struct {
	table    memstore.Table // the merged entries; written by the loop
	snapshot memstore.Snapshot

	members map[*sourceState]*contributor // owned by the loop

	mu           sync.Mutex     // guards the rest, which the loop writes and explanations read
	contributors []*contributor // in order of precedence
	families     map[family]*relatives
	entries      map[entry]family          // where each entry of a source is
	claims       map[resource.Key][]family // whose entry each merged one would be, in order: the first owns the key
	disputed     map[family]struct{}       // with refusals
	dirty        map[family]struct{}       // changed since the last commit
}

// contributor is a source as the pool knows it. It never changes.
type contributor struct {
	name       string
	precedence int
	rank       int // their order
	merge      Merge
	retired    bool // it fills gaps, and is never refused
}

// entry is a ServiceEntry of a source.
type entry struct {
	from *contributor
	key  resource.Key
}

// relatives are the entries of a family, and what is made of them.
type relatives struct {
	entries map[entry]*resource.Resource
	made    map[resource.Key]*resource.Resource // served where the family owns the key
	refuses bool                                // some of the entries
}

// restart takes over a new set of sources, in order of precedence.
func (p *pool) restart(sources []orderedSource) {
	old := p.members
	p.members = make(map[*sourceState]*contributor)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.families == nil {
		p.families, p.entries = make(map[family]*relatives), make(map[entry]family)
		p.claims, p.disputed, p.dirty = make(map[resource.Key][]family), make(map[family]struct{}), make(map[family]struct{})
	}
	for s, c := range old {
		p.forget(c, s)
	}
	p.contributors = nil
	for _, s := range sources {
		if s.Merge == nil {
			continue
		}
		c := &contributor{name: s.Name, precedence: s.Precedence, rank: len(p.contributors), merge: *s.Merge, retired: s.retired}
		p.members[s.sourceState] = c
		p.contributors = append(p.contributors, c)
		for r := range s.snapshot.List(resource.ServiceEntry, "") {
			p.set(entry{c, r.Key()}, r)
		}
	}
}

// take brings the pool up to date for keys of a source, if that is merged.
func (p *pool) take(s *sourceState, keys []resource.Key) {
	from := p.members[s]
	if from == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if key.Kind == resource.ServiceEntry {
			p.set(entry{from, key}, s.snapshot.Get(key))
		}
	}
}

// drop forgets what a source has in the pool.
func (p *pool) drop(s *sourceState) {
	if from := p.members[s]; from != nil {
		delete(p.members, s)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget(from, s)
	}
}

// forget removes the entries of a source. The caller holds mu.
func (p *pool) forget(from *contributor, s *sourceState) {
	for r := range s.snapshot.List(resource.ServiceEntry, "") {
		p.set(entry{from, r.Key()}, nil)
	}
}

// set makes r what e is; nil is nothing. The caller holds mu.
func (p *pool) set(e entry, r *resource.Resource) {
	if old, ok := p.entries[e]; ok {
		delete(p.entries, e)
		delete(p.families[old].entries, e)
		p.dirty[old] = struct{}{}
	}
	if r == nil {
		return
	}
	f := familyOf(r)
	if p.families[f] == nil {
		p.families[f] = &relatives{entries: make(map[entry]*resource.Resource)}
	}
	p.families[f].entries[e] = r
	p.entries[e] = f
	p.dirty[f] = struct{}{}
}

// commit merges anew what has changed, and returns the keys of the merged entries that are others for that.
func (p *pool) commit() (changed []resource.Key) {
	merged := p.remerge()
	changes, now := p.table.Apply(merged.puts, merged.deletes)
	for _, c := range changes {
		changed = append(changed, c.Key())
	}
	p.snapshot = now
	return changed
}

func (p *pool) remerge() (merged batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	touched := make(map[resource.Key]struct{})
	for f := range p.dirty {
		p.remake(f, touched)
	}
	for key := range touched {
		claims := p.claims[key]
		if len(claims) == 0 {
			delete(p.claims, key)
			merged.set(key, nil)
			continue
		}
		merged.set(key, p.families[claims[0]].made[key])
		for _, f := range claims {
			p.judge(f)
		}
	}
	clear(p.dirty)
	return merged
}

// remake merges the entries of a family anew. It adds the keys that it had and that it has to touched. The caller holds mu.
func (p *pool) remake(f family, touched map[resource.Key]struct{}) {
	relatives := p.families[f]
	for key := range relatives.made {
		touched[key] = struct{}{}
		p.claims[key] = slices.DeleteFunc(p.claims[key], func(o family) bool { return o == f })
	}
	relatives.made, relatives.refuses = make(map[resource.Key]*resource.Resource), false
	for _, s := range p.divided(f) {
		res := s.merged()
		key := res.Key()
		touched[key] = struct{}{}
		relatives.made[key] = res
		relatives.refuses = relatives.refuses || len(s.refused) > 0
		i, _ := slices.BinarySearchFunc(p.claims[key], f, family.compare)
		p.claims[key] = slices.Insert(p.claims[key], i, f)
	}
	if len(relatives.entries) == 0 {
		delete(p.families, f)
		delete(p.disputed, f)
	}
}

// judge finds whether anything of a family's entries is in dispute. The caller holds mu.
func (p *pool) judge(f family) {
	relatives := p.families[f]
	disputed := relatives.refuses
	for key := range relatives.made {
		disputed = disputed || p.claims[key][0] == f && len(p.claims[key]) > 1
	}
	if disputed {
		p.disputed[f] = struct{}{}
	} else {
		delete(p.disputed, f)
	}
}

// services returns what of a family is served. To those who claim a key that is the family's they have refused it. The caller
// holds mu.
func (p *pool) services(f family) (own []*service) {
	for _, s := range p.divided(f) {
		claims := p.claims[s.key()]
		if len(claims) == 0 || claims[0] == f {
			own = append(own, s)
		}
		for i, o := range claims {
			if i > 0 && claims[0] == f {
				s.outdo(p.divided(o))
			}
		}
	}
	return own
}

// about returns the services that have to do with the entries of a family: its own, and those that own keys of others. The
// caller holds mu.
func (p *pool) about(f family) []*service {
	all := p.services(f)
	for key := range p.families[f].made {
		if owner := p.claims[key][0]; owner != f {
			all = append(all, slices.DeleteFunc(p.services(owner), func(s *service) bool { return s.key() != key })...)
		}
	}
	return all
}

// divided returns what a family alone would be. The caller holds mu.
func (p *pool) divided(f family) []*service {
	var members []*member
	for e, r := range p.families[f].entries {
		members = append(members, &member{from: e.from, res: r, spec: decoded(r)})
	}
	slices.SortFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.from.rank, b.from.rank), a.res.Key().Compare(b.res.Key()))
	})
	return divide(f, members)
}
