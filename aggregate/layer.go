package aggregate

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// sourceState is a source and its content that is merged.
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
// It is a source of the configuration; the output of the pool; a retired source, which was removed while required
// sources of the new set were unread; or the content that was served when the configuration changed: View.earlier,
// which follows its sources, or View.pooled, which does not.
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

// rankOf returns the rank of source i. A single source is unranked: its objects pass
// unchanged.
func (v *View) rankOf(i int) int {
	if len(v.sources) == 1 {
		return unranked
	}
	return i
}

// describe describes object, of the layer, for explanations.
func (l layer) describe(r *resource.Resource) Statement {
	st := statement(cmp.Or(l.source, r.Origin().Source), l.precedence, r)
	st.Retiring, st.fromPool = l.fallback, l.fromPool
	return st
}

func statement(source string, precedence int, object *resource.Resource) Statement {
	description := Statement{
		Source: source, Precedence: precedence,
		Place: object.Origin().Place, Transforms: object.Origin().Rules, Before: beforeOf(object), Version: object.Version(),
	}
	if created := object.Own(); !created.IsZero() {
		description.Created = &created
	}
	if seen := object.Seen(); !seen.IsZero() {
		description.FirstSeen = &seen
	}
	return description
}

// stack returns the layers by precedence. The pool precedes its first source; `earlier` precedes the first layer that
// is not ready; retired sources come last.
func (v *View) stack() (layers []layer) {
	before := v.earlier
	add := func(next layer, ready bool) {
		if !ready && before != nil {
			layers = append(layers, layer{snapshot: before.Snapshot(), rank: unranked, fallback: true})
			before = nil
		}
		layers = append(layers, next)
	}
	pooled, poolRank := false, 0
	for i, sourceState := range v.sources {
		rank := v.rankOf(i)
		if sourceState.Merge != nil && !pooled {
			pooled, poolRank = true, rank
			add(layer{snapshot: v.pool.snapshot, precedence: sourceState.Precedence, rank: rank, fromPool: true}, v.poolReady())
		}
		add(sourceState.layer(rank), sourceState.ready())
	}
	if v.earlier != nil {
		layers = append(layers, layer{snapshot: v.pooled, rank: poolRank, fallback: true})
	}
	for _, f := range v.retired {
		l := f.layer(len(v.sources))
		l.fallback = true
		layers = append(layers, l)
	}
	return layers
}

// poolReady reports whether all sources of the pool are ready.
func (v *View) poolReady() bool {
	return !slices.ContainsFunc(v.sources, func(s *sourceState) bool { return s.Merge != nil && !s.ready() })
}

// states returns the states of the sources and of the retired ones, newest first, without retired sources that a synced
// one of the same name replaces. It also deletes the names of synced sources from hadObjects.
func (v *View) states() []*sourceState {
	states := slices.Clone(v.sources)
	for _, s := range v.sources {
		if s.synced {
			delete(v.hadObjects, s.Name)
		}
	}
	for _, f := range v.retired {
		if !slices.ContainsFunc(v.sources, func(s *sourceState) bool { return s.synced && s.Name == f.Name }) {
			states = append(states, f)
		}
	}
	return states
}

// retire makes removed, newest first, the retired sources. It keeps one of each name: an older whole state counts more
// than the partial one of a source that was never read. Together they keep each key once, so that they do not grow with
// the number of reloads; a source with Merge stays whole, since its endpoints add up.
func (v *View) retire(removed []*sourceState) {
	v.retired = nil
	keys := make(map[resource.Key]bool)
	for i, source := range removed {
		if !source.synced && !source.retired && (v.hadObjects[source.Name] ||
			slices.ContainsFunc(removed[i+1:], func(o *sourceState) bool { return o.Name == source.Name })) {
			continue
		}
		if source.snapshot.Len() > 0 {
			v.hadObjects[source.Name] = true
		}
		if source.Merge == nil {
			source = source.excluding(keys)
		}
		for _, key := range source.keys() {
			keys[key] = keys[key] || source.layer(0).get(key) != nil
		}
		if source.snapshot.Len() > 0 || len(source.snapshot.Invalid()) > 0 {
			source.synced, source.retired = false, true
			v.retired = append(v.retired, source)
		}
	}
}

// excluding returns the source without some keys.
func (s *sourceState) excluding(keys map[resource.Key]bool) *sourceState {
	var rest []*resource.Resource
	for r := range s.snapshot.All() {
		if !keys[r.Key()] {
			rest = append(rest, r)
		}
	}
	if len(rest) == s.snapshot.Len() {
		return s
	}
	var table memstore.Table
	table.ApplyView(time.Now(), rest, nil, s.snapshot.Invalid())
	return &sourceState{
		// without a Reader: the source has no updates
		Source:   Source{Name: s.Name, Precedence: s.Precedence, Optional: s.Optional},
		snapshot: table.Snapshot(),
	}
}

// withRetired returns the sources and the retired ones in order of precedence. A retired source follows its replacement
// of the same name, or else comes last.
func (v *View) withRetired() (ordered []*sourceState) {
	unreplaced := slices.Clone(v.retired)
	for _, source := range v.sources {
		ordered = append(ordered, source)
		unreplaced = slices.DeleteFunc(unreplaced, func(state *sourceState) bool {
			if state.Name == source.Name {
				ordered = append(ordered, state)
			}
			return state.Name == source.Name
		})
	}
	return append(ordered, unreplaced...)
}
