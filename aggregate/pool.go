package aggregate

import (
	"cmp"
	"slices"
	"sync"

	"tributary/memstore"
	"tributary/resource"
)

// pool merges the ServiceEntries of the sources that are to be merged, and is to the view one more source, in the place of
// the first of them. Their other objects stay with the sources. One change costs as much as the entries of its hosts.
type pool struct {
	input input          // as a source of the view; without a name and a reader
	table memstore.Table // the merged entries; written by the loop

	joined map[*input]*input // owned by the loop: to each input that is merged, what members hold of it

	mu       sync.Mutex // guards the rest, which the loop writes and explanations read
	sources  []*input   // those of joined, in order of precedence
	families map[family]*relatives
	entries  map[entry]family        // where each entry of a source is
	served   map[resource.Key]family // where each merged entry comes from
	disputed map[family]struct{}     // with refusals
	dirty    map[family]struct{}     // changed since the last commit
}

// entry is a ServiceEntry of a source.
type entry struct {
	from *input
	key  resource.Key
}

// relatives are the entries of a family, and under what keys they are served.
type relatives struct {
	entries map[entry]*resource.Resource
	keys    []resource.Key
}

// restart takes over a new set of inputs, which are in order of precedence, and returns them with the pool among them.
func (p *pool) restart(inputs []*input) []*input {
	for in := range p.joined {
		p.drop(in)
	}
	p.mu.Lock()
	if p.families == nil {
		p.families, p.entries = make(map[family]*relatives), make(map[entry]family)
		p.served, p.disputed, p.dirty = make(map[resource.Key]family), make(map[family]struct{}), make(map[family]struct{})
	}
	p.sources = nil
	p.mu.Unlock()

	p.joined = make(map[*input]*input)
	place := -1
	for i, in := range inputs {
		if in.Merge == nil {
			continue
		}
		if place < 0 {
			place = i
		}
		p.join(in, i)
		var keys []resource.Key
		for r := range in.snapshot.List(resource.ServiceEntry, "") {
			keys = append(keys, r.Key())
		}
		p.take(in, keys)
	}
	if place < 0 {
		return inputs
	}
	p.input.pooled, p.input.synced = true, true
	p.input.Precedence = inputs[place].Precedence
	return slices.Insert(inputs, place, &p.input)
}

func (p *pool) join(in *input, rank int) {
	p.joined[in] = &input{Source: in.Source, retiring: in.retiring, rank: rank}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sources = append(p.sources, p.joined[in])
}

// take brings the pool up to date for keys of an input, if that is merged.
func (p *pool) take(in *input, keys []resource.Key) {
	from := p.joined[in]
	if from == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if key.Kind == resource.ServiceEntry {
			p.set(entry{from, key}, in.snapshot.Get(key))
		}
	}
}

// drop forgets an input.
func (p *pool) drop(in *input) {
	from := p.joined[in]
	if from == nil {
		return
	}
	delete(p.joined, in)
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range in.snapshot.List(resource.ServiceEntry, "") {
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
	p.input.snapshot = now
	return changed
}

func (p *pool) remerge() (merged batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.dirty {
		family := p.families[f]
		for _, key := range family.keys {
			merged.deletes = append(merged.deletes, key)
			delete(p.served, key)
		}
		family.keys = nil
		delete(p.disputed, f)
		for _, s := range p.services(f) {
			res, _ := s.merged()
			merged.puts = append(merged.puts, res)
			family.keys = append(family.keys, res.Key())
			p.served[res.Key()] = f
			if len(s.refused) > 0 {
				p.disputed[f] = struct{}{}
			}
		}
		if len(family.entries) == 0 {
			delete(p.families, f)
		}
	}
	clear(p.dirty)
	return merged
}

// services returns what becomes of a family. The caller holds mu.
func (p *pool) services(f family) []*service {
	var members []*member
	for e, r := range p.families[f].entries {
		members = append(members, &member{from: e.from, res: r, spec: decoded(r)})
	}
	slices.SortFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.from.rank, b.from.rank), a.res.Key().Compare(b.res.Key()))
	})
	return divide(f, members)
}
