package guard

import (
	"encoding/json"
	"fmt"
	"time"

	"tributary/resource"
)

// windowSteps: saved losses are rounded to window/windowSteps.
const windowSteps = 60

// savedState is the state of a guard that outlives a restart.
type savedState struct {
	Hold   *savedHold `json:"hold,omitempty"`
	Recent []lossSum  `json:"recent,omitempty"` // losses of the window that passed
	// Most and MostOf are the most objects within the window, in all and by kind.
	Most   int                   `json:"most,omitempty"`
	MostOf map[resource.Kind]int `json:"mostOf,omitempty"`
}

type savedHold struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	Below time.Time `json:"below,omitzero"` // since when it has been below the limits

	Grew   time.Time `json:"grew,omitzero"`
	Passed []lossSum `json:"passed,omitempty"`
}

// State returns the state that Resume needs after a restart, with the table and Held; nil for none.
func (g *Guard) State() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settings.Off {
		return nil
	}
	var saved savedState
	step := max(g.settings.Window/windowSteps, time.Second)
	if h := g.hold; h != nil {
		saved.Hold = &savedHold{h.id, h.begun, h.reason, h.belowSince, h.lastJoined, h.notJoined.summary(step)}
	} else {
		g.forget(g.now())
	}
	saved.Recent = g.recent.summary(step)
	if saved.Hold == nil && len(saved.Recent) == 0 {
		return nil
	}
	saved.Most, saved.MostOf = g.peak.objects, g.peak.kinds
	state, err := json.Marshal(saved)
	if err != nil {
		panic(err) // these types always encode
	}
	return state
}

// Loss is a held loss: the object before it, and as the source wants it, which is nil if the object is gone.
type Loss struct{ Previous, Desired *resource.Resource }

// Resume restores an earlier run's state and held losses; recent losses count, a hold continues. If the state cannot be
// read, it returns an error and holds the losses in a new hold.
func (g *Guard) Resume(state []byte, held map[resource.Key]Loss) error {
	var saved savedState
	var unread error
	if len(state) > 0 {
		if err := json.Unmarshal(state, &saved); err != nil {
			saved, unread = savedState{}, fmt.Errorf("read the state of the deletion guard: %w", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.settings.Off {
		g.recent.restore(saved.Recent, g.now())
		for kind, n := range saved.MostOf {
			g.peak.kinds[kind] = max(g.peak.kinds[kind], n)
		}
		g.peak.objects = max(g.peak.objects, saved.Most)
	}
	if g.hold == nil {
		g.resumeHold(saved.Hold, held)
	}
	return unread
}

// resumeHold begins a hold with the losses of an earlier run. The caller holds mu.
func (g *Guard) resumeHold(saved *savedHold, held map[resource.Key]Loss) {
	now, before := g.now(), g.table.Snapshot()
	h := &hold{id: holdID(now, g.last), begun: now, reason: "it was held before the restart", lastJoined: now}
	if saved != nil {
		h.id, h.begun, h.reason, h.belowSince, h.lastJoined = saved.ID, saved.Since, saved.Why, saved.Below, saved.Grew
		if h.belowSince.After(now) { // the clock stepped back
			h.belowSince = now
		}
		if h.lastJoined.IsZero() || h.lastJoined.After(now) {
			h.lastJoined = now
		}
		h.notJoined.restore(saved.Passed, now)
	}
	var puts []*resource.Resource
	for key, l := range held {
		if served := before.Get(key); served != nil {
			puts = append(puts, h.add(loss{key: key, original: l.Previous, desired: l.Desired}))
		}
	}
	if h.size() == 0 {
		return
	}
	h.changed = nil
	g.hold, g.last = h, h.id
	if g.settings.Off {
		g.release("the guard was turned off")
		return
	}
	g.holdCount++
	g.queueEvent(holdEvent{resumed: true, id: h.id, reason: h.reason})
	g.commit(puts, nil, now)
	g.reassess(now)
}

// Reread announces that the source will be read with changed settings. Until MarkSynced, a missing object is not a new
// loss: the user intends it. Existing holds stay.
func (g *Guard) Reread() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newSettingsUnread = true
}

// Inherit takes over table content, hold and recent losses from the guard of the same source under its former settings.
// Call it on an empty table, and do not use `from` afterwards. The source will be read again, as after Reread.
func (g *Guard) Inherit(from *Guard) {
	from.mu.Lock()
	counts, peak, recent, hold, lastID, holdCount := from.counts, from.peak, from.recent, from.hold, from.last,
		from.holdCount
	before := from.table.Snapshot()
	from.hold = nil
	from.mu.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	objects := make([]*resource.Resource, 0, before.Len())
	for r := range before.All() {
		objects = append(objects, r)
	}
	g.table.Apply(objects, nil)
	g.counts, g.peak, g.recent, g.hold, g.last, g.holdCount = counts, peak, recent, hold, lastID, holdCount
	g.newSettingsUnread = true
	if g.hold == nil {
		return
	}
	if g.settings.Off {
		g.release("the guard was turned off")
		return
	}
	g.wakeRun() // the hold may end at another time
}
