package conflicts

import (
	"maps"
	"slices"
	"strings"

	"tributary/memstore"
	"tributary/resource"
)

// Index has the claims of resources. Follow updates it in O(changes), so that each resource is decoded once, and only if conflicts
// are asked for. The zero value is empty. It is not safe for concurrent use.
type Index struct {
	seen      memstore.Snapshot // the state that is indexed
	claimants map[resource.Key]*claimant
	byClaim   map[claim]map[resource.Key]*claimant
	byHost    map[string]map[resource.Key]*claimant
	contested map[claim]struct{} // made by more than one resource
}

// Follow brings the index up to date with r.
func (x *Index) Follow(r memstore.Reader) {
	changes, now := memstore.ChangesFrom(r, x.seen)
	for c := range changes {
		x.set(c.Key(), c.New)
	}
	x.seen = now
}

// set sets key to r, or removes it if r is nil.
func (x *Index) set(key resource.Key, r *resource.Resource) {
	if x.claimants == nil {
		*x = Index{
			seen:      x.seen,
			claimants: make(map[resource.Key]*claimant),
			byClaim:   make(map[claim]map[resource.Key]*claimant),
			byHost:    make(map[string]map[resource.Key]*claimant),
			contested: make(map[claim]struct{}),
		}
	}
	if old, ok := x.claimants[key]; ok {
		delete(x.claimants, key)
		for _, c := range old.claims {
			remove(x.byClaim, c, key)
			x.count(c)
		}
		for _, host := range old.hosts {
			remove(x.byHost, host, key)
		}
	}
	if r == nil {
		return
	}
	claimant := claimantOf(r)
	if claimant == nil {
		return
	}
	x.claimants[key] = claimant
	for _, c := range claimant.claims {
		insert(x.byClaim, c, claimant)
		x.count(c)
	}
	for _, host := range claimant.hosts {
		insert(x.byHost, host, claimant)
	}
}

// count updates contested for c.
func (x *Index) count(c claim) {
	if len(x.byClaim[c]) > 1 {
		x.contested[c] = struct{}{}
	} else {
		delete(x.contested, c)
	}
}

// All returns every conflict, in order of rule and subject.
func (x *Index) All() []Conflict { return x.conflictsOf(maps.Keys(x.contested)) }

// Of returns the conflicts that touch key.
func (x *Index) Of(key resource.Key) []Conflict {
	c, ok := x.claimants[key]
	if !ok {
		return nil
	}
	return slices.DeleteFunc(x.conflictsOf(slices.Values(c.claims)), func(conflict Conflict) bool {
		return !slices.Contains(conflict.Objects, Ref(key))
	})
}

// On returns the resources that name host, or a wildcard that it matches.
func (x *Index) On(host string) []resource.Key {
	var keys []resource.Key
	for _, name := range NamesOf(host) {
		keys = slices.AppendSeq(keys, maps.Keys(x.byHost[name]))
	}
	return keys
}

// NamesOf returns the names by which a resource can name host: "a.b", "*.b", "*".
func NamesOf(host string) []string {
	names := []string{host}
	for rest, more := host, true; more; {
		wildcard := "*"
		if _, rest, more = strings.Cut(rest, "."); more {
			wildcard = "*." + rest
		}
		if !slices.Contains(names, wildcard) {
			names = append(names, wildcard)
		}
	}
	return names
}

func (x *Index) conflictsOf(claims func(func(claim) bool)) []Conflict {
	var conflicts []Conflict
	for c := range claims {
		if conflict, ok := conflictOf(c, slices.Collect(maps.Values(x.byClaim[c]))); ok {
			conflicts = append(conflicts, conflict)
		}
	}
	slices.SortFunc(conflicts, Compare)
	return conflicts
}

func insert[K comparable](m map[K]map[resource.Key]*claimant, k K, c *claimant) {
	if m[k] == nil {
		m[k] = make(map[resource.Key]*claimant)
	}
	m[k][c.res.Key()] = c
}

func remove[K comparable](m map[K]map[resource.Key]*claimant, k K, key resource.Key) {
	delete(m[k], key)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
