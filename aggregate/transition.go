package aggregate

import (
	"slices"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// transition has the content from before the sources changed. It begins when the loop switches to other sources, and
// ends when all of these are ready. Another change of the sources meanwhile freezes the content once more.
//
// Without a transition, its fields are empty. The loop owns it.
type transition struct {
	frozen       *memstore.Table   // the content served at the change, without frozenPool; follows its sources; or nil
	frozenPool   memstore.Snapshot // the output of the pool at the change; stays as it is
	retired      []*sourceState    // the removed sources that are not yet replaced, newest first
	namesRetired map[string]bool   // of sources that had objects when they were removed, and are not yet replaced
}

// keys returns the keys of the frozen content.
func (t *transition) keys() []resource.Key {
	if t.frozen == nil {
		return nil
	}
	return append(keysOf(t.frozen.Snapshot()), keysOf(t.frozenPool)...)
}

// freeze keeps the served content, and returns its keys. pool is the output of the pool if it merges any source: it
// goes on serving its own entries, and their frozen versions only fill gaps.
func (t *transition) freeze(served, pool memstore.Snapshot) []resource.Key {
	var puts []*resource.Resource
	for object := range served.All() {
		if !isServedAs(pool.Get(object.Key()), object) {
			puts = append(puts, object)
		}
	}
	t.frozen = new(memstore.Table)
	t.frozen.Apply(puts, nil)
	t.frozenPool = pool
	return keysOf(t.frozen.Snapshot())
}

// unfreeze drops the frozen content.
func (t *transition) unfreeze() {
	t.frozen = nil
	t.frozenPool = memstore.Snapshot{}
}

// followSource applies the changes of a source to frozen objects that came from it; they get its present rank. The
// first read of a source changes none: an object that it lacks may be in a source that is not read yet.
func (t *transition) followSource(before memstore.Snapshot, source *sourceState, rank int, keys []resource.Key) {
	if t.frozen == nil || !source.synced {
		return
	}
	served := t.frozen.Snapshot()
	var next batch
	for _, key := range keys {
		if isServedAs(before.Get(key), served.Get(key)) {
			next.set(key, ranked(source.snapshot.Get(key), rank))
		}
	}
	t.frozen.Apply(next.puts, next.deletes)
}

// isServedAs reports whether object, of a source or of the pool, is the served object, apart from the rank. A rank may
// shorten the object's time.
func isServedAs(object, served *resource.Resource) bool {
	return object != nil && served != nil &&
		resource.Equal(object.Ranked(0).Unranked(), served.Ranked(0).Unranked()) && resource.SameOrigin(object, served)
}

// end drops the content from before, and returns its keys.
func (t *transition) end(mergePool *pool) []resource.Key {
	keys := t.keys()
	t.unfreeze()
	for _, source := range t.retired {
		mergePool.drop(source)
		keys = append(keys, source.keys()...)
	}
	t.retired = nil
	clear(t.namesRetired)
	return keys
}

// retire makes removed, newest first, the retired sources. It keeps one of each name: an older whole state counts more
// than the partial one of a source that was never read. Together they keep each key once, so that they do not grow with
// the number of reloads; a source with Merge stays whole, since its endpoints add up.
func (t *transition) retire(removed []*sourceState) {
	t.retired = nil
	keys := make(map[resource.Key]bool)
	for i, source := range removed {
		isWhole := source.synced || source.retired
		hasOlder := slices.ContainsFunc(removed[i+1:], func(older *sourceState) bool { return older.Name == source.Name })
		if !isWhole && (t.namesRetired[source.Name] || hasOlder) {
			continue
		}
		if source.snapshot.Len() > 0 {
			t.namesRetired[source.Name] = true
		}
		if source.Merge == nil {
			source = source.excluding(keys)
		}
		for _, key := range source.keys() {
			keys[key] = keys[key] || source.layer(0).get(key) != nil
		}
		if source.snapshot.Len() > 0 || len(source.snapshot.Invalid()) > 0 {
			source.synced = false
			source.retired = true
			t.retired = append(t.retired, source)
		}
	}
}

// excluding returns the source without some keys.
func (s *sourceState) excluding(keys map[resource.Key]bool) *sourceState {
	var rest []*resource.Resource
	for object := range s.snapshot.All() {
		if !keys[object.Key()] {
			rest = append(rest, object)
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
