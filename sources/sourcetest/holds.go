package sourcetest

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources"
)

var (
	holdSeeds = flag.Uint64("holds.seeds", 2, "how many random histories of holds each harness goes through")
	holdFirst = flag.Uint64("holds.first", 1, "the seed of the first one")
	holdSteps = flag.Int("holds.steps", 16, "how many steps a history of holds has")
)

// Holder is a Harness of a source that serves missing objects for a while if their absence proves no deletion.
type Holder interface {
	// SetHold says how long such objects stay with the sources that Source makes from now on. From then on, the system
	// keeps its objects while it is unreachable.
	SetHold(hold time.Duration)
	// Lose removes objects as a system does that restarts or loses its data. The other objects stay. No source reads a
	// state in between.
	Lose(names ...string)
}

// The holds of the suite: one that no test lives to see the end of, and one that lasts for several restarts.
const (
	endlessHold = time.Hour
	shortHold   = 400 * time.Millisecond
)

// mark is an object with a new revision for each proof that the source reads.
const mark = "mark"

// holder returns the harness with a hold, or skips the test.
func (b *rig) holder(hold time.Duration) Holder {
	holder, ok := b.Harness.(Holder)
	if !ok {
		b.t.Skip("the source has no holds")
	}
	holder.SetHold(hold)
	return holder
}

// cut ends all connections. The system is there again at once.
func (b *rig) cut(meanwhile func()) {
	b.t.Helper()
	b.Unreachable()
	meanwhile()
	b.Restore()
}

// read waits until the source reads the system again, which a mark proves, and lets it do so for a part of the hold.
func (b *rig) read() {
	b.t.Helper()
	before := b.version(mark)
	b.marks++
	b.Put(mark, b.marks)
	b.awaitObject(mark, before)
	time.Sleep(shortHold / 4) // a hold does not end while the system is away
}

// holds reports whether the status names an object as held.
func (b *rig) holds(object string) bool {
	return slices.ContainsFunc(strings.Split(b.status().Message, "; "), func(problem string) bool {
		held := strings.Contains(problem, " stay") || strings.Contains(problem, " held ")
		return held && strings.Contains(problem, object)
	})
}

// awaitHeld waits until the status names held objects.
func (b *rig) awaitHeld(objects ...string) {
	b.t.Helper()
	for _, object := range objects {
		b.await("the status names "+object, func() bool { return b.holds(object) })
		b.await(object+" is unconfirmed", func() bool {
			servings := b.supervisor.Serving(b.Key(object))
			return b.status().Unconfirmed > 0 && len(servings) == 1 && servings[0].Unconfirmed != ""
		})
		require.NotEmpty(b.t, b.version(object), "%s is held", object)
	}
}

// waitsAlone checks that only an object in doubt waits, and that it outlives restarts and new connections.
func waitsAlone(t *testing.T, rig *rig) {
	holder := rig.holder(endlessHold)
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.Put("plum", 1)
	rig.start()
	rig.awaitSync()
	pear := rig.version("pear")
	holder.Lose("apple")
	rig.awaitHeld("apple")
	for revision, turmoil := range []func(){func() {}, func() { rig.restart(func() {}) }, func() { rig.cut(func() {}) }} {
		turmoil()
		rig.Put("pear", 2+revision)
		pear = rig.awaitObject("pear", pear)
		added := []string{"quince", "fig", "lime"}[revision]
		rig.Put(added, 1)
		rig.awaitObject(added)
		rig.awaitHeld("apple")
	}
	rig.Put("apple", 1)
	rig.Put("cherry", 1) // a mark: it comes after the other
	rig.awaitObject("cherry")
	rig.await("apple is no longer held", func() bool { return !rig.holds("apple") })
	rig.neverDeleted("apple", "pear", "plum", "quince", "fig", "lime")
	require.Zero(t, rig.table.count(rig.Key("apple"), memstore.Updated), "apple came back as it was")
	require.Zero(t, rig.table.count(rig.Key("plum"), memstore.Updated), "plum did not change")
}

// endsInTurmoil checks that a hold ends although restarts and new connections follow each other faster than it lasts.
func endsInTurmoil(_ *testing.T, rig *rig) {
	holder := rig.holder(shortHold)
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	holder.Lose("apple")
	rig.turmoil("apple")
	rig.awaitState(sources.Healthy)
	rig.neverDeleted("pear")
}

// turmoil restarts the source and cuts its connections, again and again, until objects have gone.
func (b *rig) turmoil(missing ...string) {
	b.t.Helper()
	rounds := 0
	b.await(fmt.Sprintf("%v have gone", missing), func() bool {
		switch rounds++; rounds % 3 {
		case 0:
			b.restart(func() {})
		case 1:
			b.cut(func() {})
		case 2:
			b.restart(func() { b.cut(func() {}) })
		}
		b.read()
		return !slices.ContainsFunc(missing, func(object string) bool { return b.version(object) != "" })
	})
}

// anyOrder goes through random histories.
func anyOrder(t *testing.T, start func(t *testing.T) Harness) {
	for seed := *holdFirst; seed < *holdFirst+*holdSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			history := &history{
				rig: newRig(t, start(t)), random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // no secret
				objects: make(map[string]*fate), endless: seed%2 == 0,
			}
			hold := shortHold
			if history.endless {
				hold = endlessHold
			}
			history.holder = history.rig.holder(hold)
			history.run()
		})
	}
}

// history is a random order of losses, returns, changes, restarts and cut connections, with an oracle.
type history struct {
	*rig
	holder  Holder
	random  *rand.Rand
	endless bool             // no hold ends
	objects map[string]*fate // by name
	last    int              // revision
	trace   []string
}

// fate is the state of an object in the system, and its possible states in the source.
type fate struct {
	revision int
	present  bool
	changed  bool   // since the source was last seen to serve it
	served   string // its version then
	mayGo    bool   // it was removed at some time, so that the source may have dropped it
}

// anchor is the object that is never missing.
const anchor = "anchor"

func (h *history) run() {
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Log(strings.Join(h.trace, "\n"))
		}
	})
	h.put(anchor)
	h.put("apple")
	h.put("pear")
	h.start()
	h.awaitSync()
	for range *holdSteps {
		h.step()
		h.check()
	}
	if h.endless {
		return
	}
	var missing []string
	for name, object := range h.objects {
		if !object.present {
			missing = append(missing, name)
		}
	}
	h.note("turmoil until the end of", missing...)
	h.turmoil(missing...)
	h.check()
	h.awaitState(sources.Healthy) // endpoints of earlier revisions may be held, too
	fresh := &rig{Harness: h.Harness, t: h.t, table: &recorder{}}
	h.stop() // a leak of one source must not be laid at the door of the other
	fresh.start()
	fresh.awaitSync()
	h.await("a new source serves the same", func() bool { return maps.Equal(fresh.versions(), h.versions()) })
	fresh.stop()
}

// versions returns those of all served objects.
func (b *rig) versions() map[string]string {
	versions := make(map[string]string)
	for object := range b.table.Snapshot().All() {
		versions[object.Key().String()] = object.Version()
	}
	return versions
}

func (h *history) note(deed string, objects ...string) {
	h.trace = append(h.trace, deed+" "+strings.Join(objects, " "))
}

// step does one thing, with another one meanwhile if the source does not read.
func (h *history) step() {
	meanwhile := func() {
		if h.random.IntN(2) == 0 {
			h.deed()
		}
	}
	switch h.random.IntN(4) {
	case 0:
		h.note("restart, and meanwhile:")
		h.restart(meanwhile)
	case 1:
		h.note("cut, and meanwhile:")
		h.cut(meanwhile)
	default:
		h.deed()
	}
}

// deed changes an object of the system.
func (h *history) deed() {
	names := []string{"apple", "pear", "plum", "quince", "fig", "lime"}
	name := names[h.random.IntN(len(names))]
	object := h.objects[name]
	switch h.random.IntN(6) {
	case 0:
		h.put(anchor)
		return
	case 1, 2, 3:
		if object != nil && object.present {
			h.note("lose", name)
			h.holder.Lose(name)
			object.present = false
			object.mayGo = object.mayGo || !h.endless
			return
		}
	case 4:
		if object != nil && object.present {
			h.note("delete", name)
			h.Delete(name)
			object.present, object.mayGo = false, true
			return
		}
	}
	h.put(name)
}

// put makes an object, brings it back as it was, or changes it.
func (h *history) put(name string) {
	object := h.objects[name]
	if object == nil {
		object = &fate{}
		h.objects[name] = object
	}
	if object.present || object.revision == 0 || h.random.IntN(2) == 0 {
		h.last++
		object.revision, object.changed = h.last, true
	}
	object.present = true
	h.note(fmt.Sprint("put ", object.revision), name)
	h.Put(name, object.revision)
}

// check waits until the source serves all objects as they are, and checks that it dropped none too early.
func (h *history) check() {
	h.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(h.objects)) {
		switch object := h.objects[name]; {
		case object.present && object.changed:
			object.served, object.changed = h.awaitObject(name, object.served), false
		case object.present:
			object.served = h.awaitObject(name)
		case !object.mayGo:
			require.NotEmpty(h.t, h.version(name), "%s is held", name)
		}
		if object := h.objects[name]; !object.mayGo {
			h.neverDeleted(name)
		}
	}
}
