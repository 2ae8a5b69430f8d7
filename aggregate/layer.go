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
	// cite says in explanations that the layer says r.
	cite(r *resource.Resource) Statement
}

// A layer is current, earlier, former or joint.
type (
	// current is a source of the configuration.
	current struct{ said }
	// earlier is what was served when the configuration changed, and what the sources of that have made of it since.
	earlier struct{ snapshot memstore.Snapshot }
	// former is a source that was removed while required sources of the new set were not read: what it last said.
	former struct{ said }
	// joint is the pool: what it made of the ServiceEntries of those sources that have them merged.
	joint struct {
		precedence int
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
		Place: r.Origin().Place, Transforms: r.Origin().Rules, Version: r.Version(),
	}
	if created := r.Created(); !created.IsZero() {
		cited.Created = &created
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
			layers = append(layers, earlier{before.Snapshot()})
			before = nil
		}
		layers = append(layers, l)
	}
	joined := false
	for _, s := range v.sources {
		if s.Merge != nil && !joined {
			joined = true
			add(joint{precedence: s.Precedence, snapshot: v.pool.snapshot}, v.poolRead())
		}
		add(current{*s.said}, s.read())
	}
	if v.earlier != nil {
		layers = append(layers, earlier{v.pooled})
	}
	for _, f := range v.formers {
		layers = append(layers, former{*f})
	}
	return layers
}

// poolRead reports whether all that the pool is made of is read.
func (v *View) poolRead() bool {
	return !slices.ContainsFunc(v.sources, func(s *followed) bool { return s.Merge != nil && !s.read() })
}
