package conflicts

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"tributary/memstore"
	"tributary/resource"
)

// Index has the resources that name each host. Follow updates it in O(changes), and only if conflicts are asked for. It
// keeps the claims of resources only where several may compete, which are few. The zero value is empty. It is not safe
// for concurrent use.
type Index struct {
	seen      memstore.Snapshot // the state that is indexed
	owners    map[place][]*resource.Resource
	contested map[place]bool                   // those of more than one owner
	claimants map[*resource.Resource]*claimant // of owners of these, once they were compared
}

// place is a host of resources of a kind. Only resources of one kind compete.
type place struct {
	kind resource.Kind
	host string
}

// placesOf returns where object competes, each place once; none for nil.
func placesOf(object *resource.Resource) (places []place) {
	if object == nil {
		return nil
	}
	for _, host := range HostsOf(object) {
		if p := (place{object.Key().Kind, host}); !slices.Contains(places, p) { // it may be given twice
			places = append(places, p)
		}
	}
	return places
}

// Follow brings the index up to date with reader.
func (i *Index) Follow(reader memstore.Reader) {
	if i.owners == nil {
		i.owners, i.contested = make(map[place][]*resource.Resource), make(map[place]bool)
		i.claimants = make(map[*resource.Resource]*claimant)
	}
	changes, now := memstore.ChangesFrom(reader, i.seen)
	for c := range changes {
		i.remove(c.Old)
		i.add(c.New)
	}
	i.seen = now
}

func (i *Index) add(r *resource.Resource) {
	for _, place := range placesOf(r) {
		i.owners[place] = append(i.owners[place], r)
		if len(i.owners[place]) > 1 {
			i.contested[place] = true
		}
	}
}

func (i *Index) remove(object *resource.Resource) {
	delete(i.claimants, object)
	for _, place := range placesOf(object) {
		remaining := slices.DeleteFunc(i.owners[place], func(o *resource.Resource) bool { return o == object })
		i.owners[place] = remaining
		switch len(remaining) {
		case 0:
			delete(i.owners, place)
		case 1:
			delete(i.contested, place)
			delete(i.claimants, remaining[0])
		}
	}
}

// claimant returns the claims of an owner of a contested place.
func (i *Index) claimant(object *resource.Resource) *claimant {
	claimant, ok := i.claimants[object]
	if !ok {
		claimant = claimantOf(object)
		i.claimants[object] = claimant
	}
	return claimant
}

// Conflicts returns every conflict, in order of rule and subject.
func (i *Index) Conflicts() []Conflict {
	return i.conflictsOn(maps.Keys(i.contested), func(claim) bool { return true })
}

// ConflictsOf returns the conflicts that touch key.
func (i *Index) ConflictsOf(key resource.Key) []Conflict {
	object := i.seen.Get(key)
	places := slices.DeleteFunc(placesOf(object), func(p place) bool { return len(i.owners[p]) < 2 })
	if len(places) == 0 {
		return nil
	}
	claims := i.claimant(object).claims
	return slices.DeleteFunc(
		i.conflictsOn(slices.Values(places), func(c claim) bool { return slices.Contains(claims, c) }),
		func(conflict Conflict) bool { return !slices.Contains(conflict.Objects, Ref(key)) })
}

// On returns the resources that name host, or a wildcard that it matches.
func (i *Index) On(host string) (keys []resource.Key) {
	for _, name := range NamesOf(host) {
		for _, kind := range kinds {
			for _, r := range i.owners[place{kind, name}] {
				keys = append(keys, r.Key())
			}
		}
	}
	return keys
}

// NamesOf returns the names that a resource can give a host: "a.b", "*.b", "*".
func NamesOf(host string) []string {
	names := []string{host}
	for rest, hasLabels := host, true; hasLabels; {
		wildcard := "*"
		if _, rest, hasLabels = strings.Cut(rest, "."); hasLabels {
			wildcard = "*." + rest
		}
		if !slices.Contains(names, wildcard) {
			names = append(names, wildcard)
		}
	}
	return names
}

// conflictsOn returns the conflicts at places about some claims.
func (i *Index) conflictsOn(places iter.Seq[place], about func(claim) bool) []Conflict {
	var conflicts []Conflict
	for place := range places {
		byClaim := make(map[claim][]*claimant)
		for _, r := range i.owners[place] {
			owner := i.claimant(r)
			for _, c := range owner.claims {
				if c.host == place.host && about(c) {
					byClaim[c] = append(byClaim[c], owner)
				}
			}
		}
		for c, claimants := range byClaim {
			if conflict, ok := conflictOf(c, claimants); ok {
				conflicts = append(conflicts, conflict)
			}
		}
	}
	slices.SortFunc(conflicts, Compare)
	return conflicts
}
