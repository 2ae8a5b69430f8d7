package aggregate

import (
	"cmp"
	"slices"
	"sync"

	"tributary/memstore"
	"tributary/resource"
)

// pool merges the ServiceEntries of the sources with Merge, and is one more layer of the view, before the first of
// them. A changed entry costs as much as all entries of its hosts.
type pool struct {
	table    memstore.Table // the merged entries; written by the loop
	snapshot memstore.Snapshot

	bySource map[*sourceState]*contributor // owned by the loop

	mu           sync.Mutex     // guards the rest, which the loop writes and explanations read
	contributors []*contributor // in order of precedence
	groups       map[groupKey]*hostGroup
	entries      map[entry]groupKey          // the group of each entry
	claims       map[resource.Key][]groupKey // the groups with a result of the key, in order: the first owns it
	hasRefusals  map[groupKey]bool           // groups that refuse entries, of their own or of other groups
	dirty        map[groupKey]bool           // groups that changed since the last commit
}

// contributor is a source of the pool. It never changes.
type contributor struct {
	name       string
	precedence int
	rank       int // its place in the order of contributors
	merge      Merge
	retired    bool // it only fills gaps, and is never refused
}

// entry is a ServiceEntry of a source.
type entry struct {
	from *contributor
	key  resource.Key
}

// hostGroup has the entries of a group and their results.
type hostGroup struct {
	entries     map[entry]*resource.Resource
	results     map[resource.Key]*resource.Resource // served if the group owns the key
	hasRefusals bool                                // it refuses some of the entries
}

// restart takes over a new set of sources, in order of precedence.
func (p *pool) restart(sources []*sourceState) {
	contributors := p.bySource
	p.bySource = make(map[*sourceState]*contributor)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups == nil {
		p.groups = make(map[groupKey]*hostGroup)
		p.entries = make(map[entry]groupKey)
		p.claims = make(map[resource.Key][]groupKey)
		p.hasRefusals = make(map[groupKey]bool)
		p.dirty = make(map[groupKey]bool)
	}
	for s, c := range contributors {
		p.forget(c, s)
	}
	p.contributors = nil
	for _, source := range sources {
		if source.Merge == nil {
			continue
		}
		next := &contributor{
			name: source.Name, precedence: source.Precedence, rank: len(p.contributors), merge: *source.Merge,
			retired: source.retired,
		}
		p.bySource[source] = next
		p.contributors = append(p.contributors, next)
		for r := range source.snapshot.List(resource.ServiceEntry, "") {
			p.set(entry{next, r.Key()}, r)
		}
	}
}

// update applies the changed keys of a source to the pool, if the source has Merge.
func (p *pool) update(source *sourceState, keys []resource.Key) {
	from := p.bySource[source]
	if from == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if key.Kind == resource.ServiceEntry {
			p.set(entry{from, key}, source.snapshot.Get(key))
		}
	}
}

// drop removes a source from the pool.
func (p *pool) drop(source *sourceState) {
	if from := p.bySource[source]; from != nil {
		delete(p.bySource, source)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget(from, source)
	}
}

// forget removes the entries of a source. The caller holds mu.
func (p *pool) forget(from *contributor, s *sourceState) {
	for r := range s.snapshot.List(resource.ServiceEntry, "") {
		p.set(entry{from, r.Key()}, nil)
	}
}

// set sets the object of an entry, or removes it if object is nil. The caller holds mu.
func (p *pool) set(entryKey entry, object *resource.Resource) {
	if old, ok := p.entries[entryKey]; ok {
		delete(p.entries, entryKey)
		delete(p.groups[old].entries, entryKey)
		p.dirty[old] = true
	}
	if object == nil {
		return
	}
	groupID := groupKeyOf(object)
	if p.groups[groupID] == nil {
		p.groups[groupID] = &hostGroup{entries: make(map[entry]*resource.Resource)}
	}
	p.groups[groupID].entries[entryKey] = object
	p.entries[entryKey] = groupID
	p.dirty[groupID] = true
}

// commit merges changed groups again, and returns the keys of merged entries that changed.
func (p *pool) commit() (changed []resource.Key) {
	next := p.mergeDirty()
	changes, now := p.table.Apply(next.puts, next.deletes)
	for _, c := range changes {
		changed = append(changed, c.Key())
	}
	p.snapshot = now
	return changed
}

func (p *pool) mergeDirty() (next batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	touched := make(map[resource.Key]bool)
	for g := range p.dirty {
		p.mergeGroup(g, touched)
	}
	for key := range touched {
		claims := p.claims[key]
		if len(claims) == 0 {
			delete(p.claims, key)
			next.set(key, nil)
			continue
		}
		next.set(key, p.groups[claims[0]].results[key])
		for _, g := range claims {
			p.updateRefusals(g)
		}
	}
	clear(p.dirty)
	return next
}

// mergeGroup merges the entries of a group again. It adds the keys of its old and new results to
// touched. The caller holds mu.
func (p *pool) mergeGroup(groupID groupKey, touched map[resource.Key]bool) {
	group := p.groups[groupID]
	for key := range group.results {
		touched[key] = true
		p.claims[key] = slices.DeleteFunc(p.claims[key], func(o groupKey) bool { return o == groupID })
	}
	group.results = make(map[resource.Key]*resource.Resource)
	group.hasRefusals = false
	for _, merged := range p.mergedEntries(groupID) {
		object := merged.object()
		key := object.Key()
		touched[key] = true
		group.results[key] = object
		group.hasRefusals = group.hasRefusals || len(merged.refused) > 0
		i, _ := slices.BinarySearchFunc(p.claims[key], groupID, groupKey.compare)
		p.claims[key] = slices.Insert(p.claims[key], i, groupID)
	}
	if len(group.entries) == 0 {
		delete(p.groups, groupID)
		delete(p.hasRefusals, groupID)
	}
}

// updateRefusals records whether a group refuses entries: of its own, or of other groups that claim a key that it owns.
// The caller holds mu.
func (p *pool) updateRefusals(groupID groupKey) {
	group := p.groups[groupID]
	refuses := group.hasRefusals
	for key := range group.results {
		refuses = refuses || p.claims[key][0] == groupID && len(p.claims[key]) > 1
	}
	if refuses {
		p.hasRefusals[groupID] = true
	} else {
		delete(p.hasRefusals, groupID)
	}
}

// ownedEntries returns the merged entries of a group with keys that the group owns. They also refuse the members of
// other groups that claim these keys. The caller holds mu.
func (p *pool) ownedEntries(groupID groupKey) (owned []*mergedEntry) {
	for _, merged := range p.mergedEntries(groupID) {
		claims := p.claims[merged.key()]
		if len(claims) == 0 || claims[0] == groupID {
			owned = append(owned, merged)
		}
		for i, claimant := range claims {
			if i > 0 && claims[0] == groupID {
				merged.refuseOthers(p.mergedEntries(claimant))
			}
		}
	}
	return owned
}

// relatedEntries returns the merged entries of a group, and those of other groups that own keys of its results. The
// caller holds mu.
func (p *pool) relatedEntries(groupID groupKey) []*mergedEntry {
	related := p.ownedEntries(groupID)
	for key := range p.groups[groupID].results {
		if owner := p.claims[key][0]; owner != groupID {
			hasOtherKey := func(merged *mergedEntry) bool { return merged.key() != key }
			related = append(related, slices.DeleteFunc(p.ownedEntries(owner), hasOtherKey)...)
		}
	}
	return related
}

// mergedEntries merges the entries of a group, regardless of other groups. The caller holds mu.
func (p *pool) mergedEntries(groupID groupKey) []*mergedEntry {
	var members []*member
	for e, r := range p.groups[groupID].entries {
		members = append(members, &member{from: e.from, res: r, spec: decoded(r)})
	}
	slices.SortFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.from.rank, b.from.rank), a.res.Key().Compare(b.res.Key()))
	})
	return joinMembers(groupID, members)
}
