package aggregate

import (
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

// A layer is current, former or joint.
type (
	// current is a source of the configuration.
	current struct{ said }
	// former is a source that was removed while required sources of the new set were not synced. What it last said is served
	// until they are, so that replacing a source withdraws nothing in between.
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

func (former) fills() bool { return true }

func (joint) fills() bool { return false }

func (l joint) get(key resource.Key) *resource.Resource { return l.snapshot.Get(key) }

func (l current) cite(r *resource.Resource) Statement { return statement(l.Name, l.Precedence, r) }

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

// stack puts the layers in order: the pool lies before the first of the sources that it is made of.
func (v *View) stack() (layers []layer) {
	joined := false
	for _, s := range v.voices() {
		if s.Merge != nil && !joined {
			joined = true
			layers = append(layers, joint{precedence: s.Precedence, snapshot: v.pool.snapshot})
		}
		if s.former {
			layers = append(layers, former{*s.said})
		} else {
			layers = append(layers, current{*s.said})
		}
	}
	return layers
}
