package aggregate

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// sourceState is one source and the content that is merged.
type sourceState struct {
	Source
	snapshot memstore.Snapshot
}

// layer is content in an order of precedence: the first layer that has a key wins it and shadows the others. A layer is immutable.
type layer interface {
	// get returns the object that the layer has under key, or nil.
	get(key resource.Key) *resource.Resource
	// fills reports whether the layer only fills gaps: it wins keys that no other layer has, and is never shadowed.
	fills() bool
	// rank returns r, of the layer, with the rank by which clients see the place of the layer in the order of sources.
	rank(r *resource.Resource) *resource.Resource
	// cite returns what explanations show of r, which the layer has.
	cite(r *resource.Resource) Statement
}

// A layer is current, earlier, retired or merged.
type (
	// current is a source of the configuration.
	current struct {
		sourceState
		place int
	}
	// earlier is what was served when the configuration changed, with the changes that its sources made since.
	earlier struct {
		place    int // unranked if all has the rank with which it was served
		snapshot memstore.Snapshot
	}
	// retired is the last content of a source that was removed while required sources of the new set were not read.
	retired struct {
		sourceState
		place int
	}
	// merged is the output of the pool: the merged ServiceEntries of the sources with Merge.
	merged struct {
		precedence int
		place      int
		snapshot   memstore.Snapshot
	}
)

// get leaves out the ServiceEntries of a source with Merge: the pool has them.
func (s sourceState) get(key resource.Key) *resource.Resource {
	if s.Merge != nil && key.Kind == resource.ServiceEntry {
		return nil
	}
	return s.snapshot.Get(key)
}

func (current) fills() bool { return false }

func (earlier) fills() bool { return true }

func (retired) fills() bool { return true }

func (merged) fills() bool { return false }

func (l current) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

func (l earlier) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

func (l retired) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

func (l merged) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

// unranked is the place of what keeps the rank that it has, if it has one.
const unranked = -1

func rank(r *resource.Resource, place int) *resource.Resource {
	if r == nil || place == unranked {
		return r
	}
	return r.Ranked(place)
}

// place returns the place of the source i in the order of sources. A single source and one that is Ranked have none: their objects
// pass unchanged.
func (v *View) place(i int) int {
	if len(v.sources) == 1 || v.sources[i].Ranked {
		return unranked
	}
	return i
}

func (l earlier) get(key resource.Key) *resource.Resource { return l.snapshot.Get(key) }

func (l merged) get(key resource.Key) *resource.Resource { return l.snapshot.Get(key) }

func (l current) cite(r *resource.Resource) Statement { return statement(l.Name, l.Precedence, r) }

func (l earlier) cite(r *resource.Resource) Statement {
	cited := statement(r.Origin().Source, 0, r)
	cited.Retiring = true
	return cited
}

func (l retired) cite(r *resource.Resource) Statement {
	cited := statement(l.Name, l.Precedence, r)
	cited.Retiring = true
	return cited
}

// cite names all the sources that r is made of.
func (l merged) cite(r *resource.Resource) Statement {
	cited := statement(r.Origin().Source, l.precedence, r)
	cited.merged = true
	return cited
}

func statement(source string, precedence int, r *resource.Resource) Statement {
	cited := Statement{
		Source: source, Precedence: precedence,
		Place: r.Origin().Place, Transforms: r.Origin().Rules, Before: beforeOf(r), Version: r.Version(),
	}
	if created := r.Own(); !created.IsZero() {
		cited.Created = &created
	}
	if seen := r.Seen(); !seen.IsZero() {
		cited.FirstSeen = &seen
	}
	return cited
}

// stack returns the layers in order of precedence. The pool comes before the first of its sources. What was served before the configuration
// changed comes before the first layer that is not read whole: the layers above are complete, and what the others lack may turn out to be
// as it was. Retired sources come last, for keys whose winner has gone since.
func (v *View) stack() (layers []layer) {
	before := v.earlier
	add := func(l layer, read bool) {
		if !read && before != nil {
			layers = append(layers, earlier{unranked, before.Snapshot()})
			before = nil
		}
		layers = append(layers, l)
	}
	joined, poolPlace := false, 0
	for i, s := range v.sources {
		place := v.place(i)
		if s.Merge != nil && !joined {
			joined, poolPlace = true, place
			add(merged{precedence: s.Precedence, place: place, snapshot: v.pool.snapshot}, v.poolRead())
		}
		add(current{*s.sourceState, place}, s.read())
	}
	if v.earlier != nil {
		layers = append(layers, earlier{poolPlace, v.pooled})
	}
	for _, f := range v.retired {
		layers = append(layers, retired{*f, len(v.sources)})
	}
	return layers
}

// poolRead reports whether all that the pool is made of is read.
func (v *View) poolRead() bool {
	return !slices.ContainsFunc(v.sources, func(s *followed) bool { return s.Merge != nil && !s.read() })
}
