package aggregate

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// said is what one source says, as far as it is merged.
type said struct {
	Source
	snapshot memstore.Snapshot
}

// layer is one voice in what a key is. They lie in order of precedence: the first that has a key wins it, and the others
// are shadowed. A layer is immutable.
type layer interface {
	// get returns what the layer says of key, or nil.
	get(key resource.Key) *resource.Resource
	// fills reports whether the layer is there only to fill gaps: it wins what nobody else has, and never loses.
	fills() bool
	// rank returns r, which the layer says, with the rank by which clients know the place of the layer in the order of sources.
	rank(r *resource.Resource) *resource.Resource
	// cite says in explanations that the layer says r.
	cite(r *resource.Resource) Statement
}

// A layer is current, earlier, former or joint.
type (
	// current is a source of the configuration.
	current struct {
		said
		place int
	}
	// earlier is what was served when the configuration changed, and what the sources of that have made of it since.
	earlier struct {
		place    int // unranked if all has the rank with which it was served
		snapshot memstore.Snapshot
	}
	// former is a source that was removed while required sources of the new set were not read: what it last said.
	former struct {
		said
		place int
	}
	// joint is the pool: what it made of the ServiceEntries of those sources that have them merged.
	joint struct {
		precedence int
		place      int
		snapshot   memstore.Snapshot
	}
)

// get leaves out the ServiceEntries of a source that has them merged: they are not its own to say.
func (s said) get(key resource.Key) *resource.Resource {
	if s.Merge != nil && key.Kind == resource.ServiceEntry {
		return nil
	}
	return s.snapshot.Get(key)
}

func (current) fills() bool { return false }

func (earlier) fills() bool { return true }

func (former) fills() bool { return true }

func (joint) fills() bool { return false }

func (l current) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

func (l earlier) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

func (l former) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

func (l joint) rank(r *resource.Resource) *resource.Resource { return rank(r, l.place) }

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

func (l joint) get(key resource.Key) *resource.Resource { return l.snapshot.Get(key) }

func (l current) cite(r *resource.Resource) Statement { return statement(l.Name, l.Precedence, r) }

func (l earlier) cite(r *resource.Resource) Statement {
	cited := statement(r.Origin().Source, 0, r)
	cited.Retiring = true
	return cited
}

func (l former) cite(r *resource.Resource) Statement {
	cited := statement(l.Name, l.Precedence, r)
	cited.Retiring = true
	return cited
}

// cite names all the sources that r is made of.
func (l joint) cite(r *resource.Resource) Statement {
	cited := statement(r.Origin().Source, l.precedence, r)
	cited.joint = true
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

// stack puts the layers in order. The pool lies before the first of the sources that it is made of. What was served before
// the configuration changed lies before the first layer that is not read as a whole: what the layers above it have is
// certain by now, and what they lack may turn out to be as it was. Last come the sources that were removed, for what had hidden
// them and has gone since.
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
			add(joint{precedence: s.Precedence, place: place, snapshot: v.pool.snapshot}, v.poolRead())
		}
		add(current{*s.said, place}, s.read())
	}
	if v.earlier != nil {
		layers = append(layers, earlier{poolPlace, v.pooled})
	}
	for _, f := range v.formers {
		layers = append(layers, former{*f, len(v.sources)})
	}
	return layers
}

// poolRead reports whether all that the pool is made of is read.
func (v *View) poolRead() bool {
	return !slices.ContainsFunc(v.sources, func(s *followed) bool { return s.Merge != nil && !s.read() })
}
