package presence

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var modelSeeds = flag.Uint64("model.seeds", 500, "number of random histories of each model")

const (
	modelHold  = time.Minute
	modelSteps = 100
)

// span is for how long a hold ran, at least and at most: a clock that is set leaves that open.
type span struct{ least, most time.Duration }

// world is a source in a random history, with its clock. Holds run while it is up.
type world struct {
	*testing.T
	random    *rand.Rand
	now       time.Time
	up        bool
	suspicion Suspicion
	running   map[string]*span // holds that run, by item
}

// histories runs a test with random worlds.
func histories(t *testing.T, history func(w *world)) {
	for seed := range *modelSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // the same cases each time
			history(&world{T: t, random: random, now: after(0), up: true, running: map[string]*span{}})
		})
	}
}

// draw draws a step, with its item.
func (w *world) draw(steps ...string) (step string, item int) {
	w.Helper()
	step, item = steps[w.random.IntN(len(steps))], w.random.IntN(5)
	w.Log(step, item)
	return step, item
}

func (w *world) seconds() time.Duration {
	return time.Duration(w.random.IntN(40)) * time.Second
}

func (w *world) pass(elapsed time.Duration) {
	w.now = w.now.Add(elapsed)
	for _, hold := range w.running {
		if w.up {
			hold.least, hold.most = hold.least+elapsed, hold.most+elapsed
		}
	}
}

// setClock sets the clock between two runs. A clock that goes back prolongs holds; one that goes forward may end them.
func (w *world) setClock() {
	jump := time.Duration(w.random.IntN(5)-2) * 30 * time.Second
	w.now = w.now.Add(jump)
	for _, hold := range w.running {
		if hold.most += max(0, jump); jump < 0 {
			hold.least = 0
		}
		if w.up {
			hold.least += max(0, jump)
		}
	}
}

func store[T any](t require.TestingT, value T) (restored T) {
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &restored))
	return restored
}

// sessions is a registry that lists an instance while it hears from it.
type sessions struct {
	*world
	listed   map[int]State // by the registry
	seen     map[int]State // in the last answer
	items    []Item[int]
	earlier  map[int]bool  // items first listed before the last return
	returned time.Duration // since the last return
}

// TestModel_Sessions has instances come, go and be forgotten, connections flap, runs end and clocks be set. A listed
// item never goes. An earlier item goes during a suspicion only after its own hold. No hold is longer than from the
// moment when the item went missing, outages aside, over all runs.
func TestModel_Sessions(t *testing.T) {
	histories(t, func(w *world) {
		s := &sessions{world: w, listed: map[int]State{}, earlier: map[int]bool{}, returned: modelHold}
		for range modelSteps {
			s.pass(time.Millisecond)
			switch step, item := s.draw("list", "list", "list", "unlist", "forget", "pass", "pass", "away", "back", "cut",
				"restart", "clock"); step {
			case "list":
				if s.listed[item] = Listed; w.random.IntN(3) == 0 {
					s.listed[item] = State(w.random.IntN(int(Unlisted)) + 1)
				}
			case "unlist":
				delete(s.listed, item)
			case "forget":
				clear(s.listed)
			case "pass":
				s.pass(s.seconds())
			case "away":
				s.up, s.suspicion = false, s.suspicion.Leave(s.now)
			case "back":
				s.back()
			case "cut":
				s.suspicion = s.suspicion.Leave(s.now)
				s.back()
			case "restart":
				s.restart()
			case "clock":
				s.setClock()
				s.restart()
			}
			s.read()
		}
		s.back()
		s.read()
		s.pass(modelHold)
		s.read()
		for _, item := range s.items {
			require.Contains(w, []State{Listed, Unreadable}, s.listed[item.Value], "a hold has an end")
		}
	})
}

func (s *sessions) pass(elapsed time.Duration) {
	if s.world.pass(elapsed); s.up {
		s.returned += elapsed
	}
}

func (s *sessions) back() {
	Postpone(s.items, s.suspicion.AwayFor(s.now))
	s.up, s.suspicion, s.returned = true, Suspect(s.now, modelHold, ""), 0
	for _, item := range s.items {
		s.earlier[item.Value] = true
	}
}

func (s *sessions) restart() {
	s.seen = nil
	away := store(s, s.suspicion).Away
	if away.IsZero() {
		away = s.now
	}
	s.suspicion = Suspicion{Away: RestoredTime(away, s.now)}
	for index, item := range s.items {
		restored := Item[int]{Value: item.Value}
		if !item.Missing.IsZero() {
			restored.Missing = RestoredTime(store(s, item.Missing), s.now)
		}
		s.items[index] = restored
	}
	if s.up {
		s.back()
	}
}

// read folds an answer, or the last one while the registry is away.
func (s *sessions) read() {
	if s.up {
		s.seen = maps.Clone(s.listed)
	} else if s.seen == nil {
		return
	}
	var reports []Report[int]
	for item, state := range s.seen {
		reports = append(reports, Report[int]{item, state})
	}
	before := map[int]Item[int]{}
	for _, item := range s.items {
		before[item.Value] = item
	}
	fold := func(items []Item[int], now time.Time) ([]Item[int], int, time.Time) {
		return Fold(slices.Clone(items), reports, cmp.Compare[int], func(item Item[int]) time.Time {
			return s.suspicion.Deadline(item.FirstListed, item.Missing)
		}, now)
	}
	items, held, next := fold(s.items, s.now)
	s.items = items
	present := map[int]bool{}
	for _, item := range items {
		present[item.Value] = true
		if s.seen[item.Value] != Listed {
			held--
		}
	}
	require.Zero(s, held)
	for item := range 6 {
		name := fmt.Sprint(item)
		_, existed := before[item]
		state := s.seen[item]
		if state == 0 {
			state = Unlisted
		}
		switch {
		case state == Listed:
			require.True(s, present[item], "%d is listed", item)
			if !existed {
				s.earlier[item] = false
			}
		case state == Unreadable:
			require.Equal(s, existed, present[item], "%d may be there", item)
		case state == Disabled || !existed:
			require.False(s, present[item], "%d is off, or was never listed", item)
		}
		if state != Unlisted || !existed {
			delete(s.running, name)
			continue
		}
		if s.running[name] == nil {
			s.running[name] = &span{}
		}
		if hold := s.running[name]; present[item] {
			require.Less(s, hold.least, modelHold, "%d stays longer than its hold", item)
			require.True(s, s.earlier[item], "%d is of a new session", item)
		} else {
			over := s.returned >= modelHold || hold.most >= modelHold
			require.True(s, over || !s.earlier[item], "%d goes during its hold", item)
			delete(s.running, name)
		}
	}
	s.suspicion = s.suspicion.Expire(s.now)
	if !next.IsZero() {
		require.True(s, next.After(s.now))
		same, _, _ := fold(items, next.Add(-1))
		require.Len(s, same, len(items), "before the deadline")
		fewer, _, _ := fold(items, next)
		require.Less(s, len(fewer), len(items), "at the deadline")
	}
}

// database is a source that stores its items, and sometimes loses some.
//
// The running holds are those of items that were there at the last loss, and were not listed since.
type database struct {
	*world
	stored   map[string]int // version by name
	snapshot map[string]int
	version  int
	set      Set[int]
	missed   bool // there is a loss that no list has shown yet
}

// TestModel_Database has items be written and deleted, data be lost or restored to an older state, and outages,
// restarts and clocks as above. A listed item never goes. An item that was not listed since a loss stays for the hold,
// which restarts do not prolong. Each other item goes with the first list that omits it.
func TestModel_Database(t *testing.T) {
	histories(t, func(w *world) {
		d := &database{world: w, stored: map[string]int{}, snapshot: map[string]int{}, set: Set[int]{}}
		for range modelSteps {
			d.pass(time.Millisecond)
			step, item := d.draw("put", "put", "put", "delete", "snapshot", "wipe", "restore", "list", "list", "list", "event",
				"pass", "pass", "pass", "pass", "away", "back", "back", "restart", "clock")
			switch name := fmt.Sprint(item); step {
			case "put":
				d.version++
				d.stored[name] = d.version
			case "delete":
				delete(d.stored, name)
			case "snapshot":
				d.snapshot = maps.Clone(d.stored)
			case "wipe":
				d.lose(map[string]int{})
			case "restore":
				d.lose(maps.Clone(d.snapshot))
			case "list":
				d.list()
			case "event":
				d.event(name)
			case "pass":
				d.pass(d.seconds())
			case "away":
				d.up, d.suspicion = false, d.suspicion.Leave(d.now)
			case "back":
				d.up, d.suspicion = true, d.suspicion.Return(d.now)
			case "restart":
				d.restart()
			case "clock":
				d.setClock()
				d.restart()
			}
			for name, hold := range d.running {
				if hold.most < modelHold && d.set[name].Held {
					require.True(d, d.suspicion.Holds(d.now), "%s is held", name)
				}
			}
		}
		d.up, d.suspicion = true, d.suspicion.Return(d.now)
		d.list()
		d.pass(modelHold)
		d.list()
		require.Len(w, d.set, len(d.stored), "a hold has an end")
	})
}

func (d *database) lose(left map[string]int) { d.stored, d.missed = left, true }

// event is a change of one item that the source reports by itself.
func (d *database) event(name string) {
	if !d.up || d.missed {
		return
	}
	if version, exists := d.stored[name]; exists {
		d.set.Put(name, version)
	} else {
		delete(d.set, name)
	}
	delete(d.running, name)
}

func (d *database) restart() {
	type note struct {
		Suspicion
		Listed map[string]int
		Held   []string
	}
	saved := note{Suspicion: d.suspicion, Listed: map[string]int{}, Held: d.set.Held()}
	for name, mark := range d.set {
		if !mark.Held {
			saved.Listed[name] = mark.Value
		}
	}
	restored := store(d, saved)
	d.set, d.suspicion = Set[int]{}, restored.Restored(d.now, modelHold)
	for name, version := range restored.Listed {
		d.set.Put(name, version)
	}
	d.set.Hold(restored.Held...)
}

// list folds a complete list.
func (d *database) list() {
	if !d.up {
		return
	}
	before := maps.Clone(d.set)
	if d.missed {
		d.missed = false
		d.set.Hold(slices.Collect(maps.Keys(d.set))...)
		d.suspicion = Suspect(d.now, modelHold, "data was lost")
		for name := range before {
			d.running[name] = &span{}
		}
	}
	d.suspicion = d.suspicion.Expire(d.now)
	gone := d.set.Fold(d.stored, d.suspicion.Holds(d.now))
	for name, version := range d.stored {
		require.Equal(d, Entry[int]{Value: version}, d.set[name], "%s is listed", name)
		delete(d.running, name)
	}
	var held []string
	for name := range before {
		_, isListed := d.stored[name]
		_, stays := d.set[name]
		require.Equal(d, !stays, slices.Contains(gone, name), name)
		hold := d.running[name]
		switch {
		case isListed:
		case stays:
			held = append(held, name)
			require.NotNil(d, hold, "%s was not lost, and stays", name)
			require.Less(d, hold.least, modelHold, "%s stays longer than the hold", name)
		case hold != nil:
			require.GreaterOrEqual(d, hold.most, modelHold, "%s goes during the hold", name)
			delete(d.running, name)
		}
	}
	slices.Sort(held)
	require.Equal(d, held, d.set.Held())
	require.Len(d, d.set, len(d.stored)+len(held))
}
