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
	Begun time.Time `json:"since"`
	Why   string    `json:"why"`
	Below time.Time `json:"below,omitzero"` // since when it has been below the limits

	Grew   time.Time `json:"grew,omitzero"`
	Passed []lossSum `json:"passed,omitempty"`
}

// State returns the state that Resume needs after a restart, with the table and Held; nil for none.
func (g *Guard) State(now time.Time) []byte {
	if g.settings.Off {
		return nil
	}
	var saved savedState
	step := max(g.settings.Window/windowSteps, time.Second)
	if h := g.hold; h != nil {
		saved.Hold = &savedHold{h.id, h.begun, h.reason, h.belowSince, h.lastJoined, h.notJoined.summary(step)}
	} else {
		g.forget(now)
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

// Loss is a held loss: the object before it, and as the source wants it, which is nil if the object is gone. The served
// object may combine both.
type Loss struct{ Previous, Desired *resource.Resource }

// Resume restores an earlier run's state and held losses; recent losses count, a hold continues. If the state cannot be
// read, it returns an error and holds the losses in a new hold.
func (g *Guard) Resume(moment Moment, state []byte, held map[resource.Key]Loss) (Change, error) {
	var saved savedState
	var unread error
	if len(state) > 0 {
		if err := json.Unmarshal(state, &saved); err != nil {
			saved, unread = savedState{}, fmt.Errorf("read the state of the deletion guard: %w", err)
		}
	}
	if !g.settings.Off {
		g.recent.restore(saved.Recent, moment.Now)
		for kind, n := range saved.MostOf {
			g.peak.kinds[kind] = max(g.peak.kinds[kind], n)
		}
		g.peak.objects = max(g.peak.objects, saved.Most)
	}
	return g.resumeHold(moment, saved.Hold, held), unread
}

// resumeHold begins a hold with the losses of an earlier run.
func (g *Guard) resumeHold(moment Moment, saved *savedHold, held map[resource.Key]Loss) (change Change) {
	hold := &hold{
		id: holdID(moment.Now, g.last), begun: moment.Now, reason: "it was held before the restart", lastJoined: moment.Now,
	}
	if saved != nil {
		hold.id, hold.begun, hold.reason, hold.belowSince, hold.lastJoined = saved.ID, saved.Begun, saved.Why, saved.Below,
			saved.Grew
		if hold.belowSince.After(moment.Now) { // the clock stepped back
			hold.belowSince = moment.Now
		}
		if hold.lastJoined.IsZero() || hold.lastJoined.After(moment.Now) {
			hold.lastJoined = moment.Now
		}
		hold.notJoined.restore(saved.Passed, moment.Now)
	}
	for key, l := range held {
		if moment.Served.Get(key) != nil {
			change.Puts = append(change.Puts, hold.add(loss{key: key, original: l.Previous, desired: l.Desired}))
		}
	}
	if hold.size() == 0 {
		return change
	}
	hold.changed = nil
	g.hold, g.last = hold, hold.id
	if g.settings.Off {
		return g.release(moment, "the guard was turned off")
	}
	g.holdCount++
	g.events = append(g.events, Event{Resumed: true, id: hold.id, reason: hold.reason})
	g.pass(moment, change)
	g.reassess(moment.Now)
	return change
}

// Reread announces that the source will be read with changed settings. Until MarkRead, a missing object is not a new
// loss: the user intends it. Existing holds stay.
func (g *Guard) Reread() { g.newSettingsUnread = true }
