package aggregate

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// sourceState is a source and its content that is merged.
type sourceState struct {
	Source
	snapshot memstore.Snapshot
}

// layer is content in an order of precedence: the first layer that has a key wins it and shadows the others. It is immutable.
type layer interface {
	// get returns the layer's object of key, or nil.
	get(key resource.Key) *resource.Resource
	// isFallback reports whether the layer only fills gaps: it wins keys that no other layer has, and is never shadowed.
	isFallback() bool
	// withRank returns r, of the layer, with the layer's rank, by which clients know the order of sources.
	withRank(r *resource.Resource) *resource.Resource
	// describe describes r, of the layer, for explanations.
	describe(r *resource.Resource) Statement
}

// A layer is current, earlier, retired or merged.
type (
	// current is a source of the configuration.
	current struct {
		sourceState
		rank int
	}
	// earlier is content served when the configuration changed: View.earlier, which follows its sources, or View.pooled, which does not.
	earlier struct {
		rank     int // unranked if each object keeps its rank
		snapshot memstore.Snapshot
	}
	// retired is the last content of a source that was removed while required sources of the new set were unread.
	retired struct {
		sourceState
		rank int
	}
	// merged is the output of the pool: the merged ServiceEntries of the sources with Merge.
	merged struct {
		precedence int
		rank       int
		snapshot   memstore.Snapshot
	}
)

// get omits the ServiceEntries of a source with Merge: the pool has them.
func (s sourceState) get(key resource.Key) *resource.Resource {
	if s.Merge != nil && key.Kind == resource.ServiceEntry {
		return nil
	}
	return s.snapshot.Get(key)
}

func (current) isFallback() bool { return false }

func (earlier) isFallback() bool { return true }

func (retired) isFallback() bool { return true }

func (merged) isFallback() bool { return false }

func (l current) withRank(r *resource.Resource) *resource.Resource { return ranked(r, l.rank) }

func (l earlier) withRank(r *resource.Resource) *resource.Resource { return ranked(r, l.rank) }

func (l retired) withRank(r *resource.Resource) *resource.Resource { return ranked(r, l.rank) }

func (l merged) withRank(r *resource.Resource) *resource.Resource { return ranked(r, l.rank) }

// unranked leaves an object the rank that it has, if any.
const unranked = -1

func ranked(r *resource.Resource, rank int) *resource.Resource {
	if r == nil || rank == unranked {
		return r
	}
	return r.Ranked(rank)
}

// rankOf returns the rank of source i. A single source and one that is Ranked are unranked: their objects pass unchanged.
func (v *View) rankOf(i int) int {
	if len(v.sources) == 1 || v.sources[i].Ranked {
		return unranked
	}
	return i
}

func (l earlier) get(key resource.Key) *resource.Resource { return l.snapshot.Get(key) }

func (l merged) get(key resource.Key) *resource.Resource { return l.snapshot.Get(key) }

func (l current) describe(r *resource.Resource) Statement { return statement(l.Name, l.Precedence, r) }

func (l earlier) describe(r *resource.Resource) Statement {
	st := statement(r.Origin().Source, 0, r)
	st.Retiring = true
	return st
}

func (l retired) describe(r *resource.Resource) Statement {
	st := statement(l.Name, l.Precedence, r)
	st.Retiring = true
	return st
}

// describe names all the sources of r.
func (l merged) describe(r *resource.Resource) Statement {
	st := statement(r.Origin().Source, l.precedence, r)
	st.fromPool = true
	return st
}

func statement(source string, precedence int, r *resource.Resource) Statement {
	st := Statement{
		Source: source, Precedence: precedence,
		Place: r.Origin().Place, Transforms: r.Origin().Rules, Before: beforeOf(r), Version: r.Version(),
	}
	if created := r.Own(); !created.IsZero() {
		st.Created = &created
	}
	if seen := r.Seen(); !seen.IsZero() {
		st.FirstSeen = &seen
	}
	return st
}

// stack returns the layers by precedence. The pool precedes its first source; `earlier` precedes the first layer that is not ready; retired
// sources come last.
func (v *View) stack() (layers []layer) {
	before := v.earlier
	add := func(l layer, ready bool) {
		if !ready && before != nil {
			layers = append(layers, earlier{unranked, before.Snapshot()})
			before = nil
		}
		layers = append(layers, l)
	}
	pooled, poolRank := false, 0
	for i, s := range v.sources {
		rank := v.rankOf(i)
		if s.Merge != nil && !pooled {
			pooled, poolRank = true, rank
			add(merged{precedence: s.Precedence, rank: rank, snapshot: v.pool.snapshot}, v.poolReady())
		}
		add(current{*s.sourceState, rank}, s.ready())
	}
	if v.earlier != nil {
		layers = append(layers, earlier{poolRank, v.pooled})
	}
	for _, f := range v.retired {
		layers = append(layers, retired{*f, len(v.sources)})
	}
	return layers
}

// poolReady reports whether all sources of the pool are ready.
func (v *View) poolReady() bool {
	return !slices.ContainsFunc(v.sources, func(s *followed) bool { return s.Merge != nil && !s.ready() })
}
