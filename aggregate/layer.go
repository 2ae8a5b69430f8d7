package aggregate

import (
	"cmp"
	"iter"
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// sourceState is a source and its merged content.
type sourceState struct {
	Source
	snapshot memstore.Snapshot
	synced   bool // a source of the configuration that was read
	retired  bool // it was removed from the configuration
}

// ready reports whether the view need not wait for the source: it was read, or is optional.
func (s *sourceState) ready() bool { return s.synced || s.Optional }

// layer is content in an order of precedence: the first layer that has a key wins it and shadows the others. It is
// immutable.
//
// The layers, in their order (View.stack):
//   - the sources of the configuration; the output of the pool precedes its first source;
//   - transition.frozen precedes the first of these that is not ready;
//   - transition.frozenPool;
//   - the retired sources, newest first.
type layer struct {
	snapshot   memstore.Snapshot
	source     string // empty if each object names its own
	precedence int
	rank       int  // tells clients the order of sources; unranked if each object keeps its own rank
	merges     bool // the pool has its ServiceEntries
	fromPool   bool // it is the output of the pool
	fallback   bool // it only fills gaps: it wins keys that no other layer has, and is never shadowed
}

// unranked is the rank of a layer that changes no ranks of its objects.
const unranked = -1

func (s *sourceState) layer(rank int) layer {
	return layer{snapshot: s.snapshot, source: s.Name, precedence: s.Precedence, rank: rank, merges: s.Merge != nil}
}

// get returns the layer's object of key, or nil.
func (l layer) get(key resource.Key) *resource.Resource {
	if l.merges && key.Kind == resource.ServiceEntry {
		return nil
	}
	return l.snapshot.Get(key)
}

// layersWith yields each layer that has an object of key, together with the object, the winner first. It yields a
// fallback only if that wins.
func layersWith(layers []layer, key resource.Key) iter.Seq2[layer, *resource.Resource] {
	return func(yield func(layer, *resource.Resource) bool) {
		hasWinner := false
		for _, layer := range layers {
			object := layer.get(key)
			if object == nil || hasWinner && layer.fallback {
				continue
			}
			if hasWinner = true; !yield(layer, object) {
				return
			}
		}
	}
}

func ranked(object *resource.Resource, rank int) *resource.Resource {
	if object == nil || rank == unranked {
		return object
	}
	return object.Ranked(rank)
}

// rankAt returns the rank of the source at a position. A single source is unranked: its objects pass unchanged.
func (v *View) rankAt(position int) int {
	if len(v.sources) == 1 {
		return unranked
	}
	return position
}

// describe describes object, of the layer, for explanations.
func (l layer) describe(r *resource.Resource) Statement {
	description := statement(cmp.Or(l.source, r.Origin().Source), l.precedence, r)
	description.Retired = l.fallback
	description.fromPool = l.fromPool
	return description
}

func statement(source string, precedence int, object *resource.Resource) Statement {
	description := Statement{
		Source: source, Precedence: precedence, Place: object.Origin().Place,
		Transforms: object.Origin().Rules, Before: beforeOf(object), Version: object.Version(),
	}
	if created := object.Own(); !created.IsZero() {
		description.Created = &created
	}
	if seen := object.Seen(); !seen.IsZero() {
		description.FirstSeen = &seen
	}
	return description
}

// stack returns the layers in their order.
func (v *View) stack() (layers []layer) {
	unplaced := v.transition.frozen // until its layer is added
	add := func(next layer, ready bool) {
		if !ready && unplaced != nil {
			layers = append(layers, layer{snapshot: unplaced.Snapshot(), rank: unranked, fallback: true})
			unplaced = nil
		}
		layers = append(layers, next)
	}
	hasPool := false
	poolRank := 0
	for i, source := range v.sources {
		rank := v.rankAt(i)
		if source.Merge != nil && !hasPool {
			hasPool = true
			poolRank = rank
			add(layer{snapshot: v.pool.snapshot, precedence: source.Precedence, rank: rank, fromPool: true}, v.poolReady())
		}
		add(source.layer(rank), source.ready())
	}
	if v.transition.frozen != nil {
		layers = append(layers, layer{snapshot: v.transition.frozenPool, rank: poolRank, fallback: true})
	}
	for _, source := range v.transition.retired {
		retired := source.layer(len(v.sources))
		retired.fallback = true
		layers = append(layers, retired)
	}
	return layers
}

// poolReady reports whether all sources of the pool are ready.
func (v *View) poolReady() bool {
	return !slices.ContainsFunc(v.sources, func(s *sourceState) bool { return s.Merge != nil && !s.ready() })
}

// unreplaced returns the sources and the retired ones, newest first, without retired sources that a synced one of the
// same name replaces.
func (v *View) unreplaced() []*sourceState {
	states := slices.Clone(v.sources)
	for _, retired := range v.transition.retired {
		if !slices.ContainsFunc(v.sources, func(s *sourceState) bool { return s.synced && s.Name == retired.Name }) {
			states = append(states, retired)
		}
	}
	return states
}

// withRetired returns the sources and the retired ones in order of precedence. A retired source follows its replacement
// of the same name, or else comes last.
func (v *View) withRetired() (ordered []*sourceState) {
	unplaced := slices.Clone(v.transition.retired)
	for _, source := range v.sources {
		ordered = append(ordered, source)
		unplaced = slices.DeleteFunc(unplaced, func(state *sourceState) bool {
			if state.Name == source.Name {
				ordered = append(ordered, state)
			}
			return state.Name == source.Name
		})
	}
	return append(ordered, unplaced...)
}
