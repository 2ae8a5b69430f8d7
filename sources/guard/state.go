package guard

import (
	"encoding/json"
	"fmt"
	"time"
)

// steps is how many of a window's parts losses are told apart by over a restart.
const steps = 60

// kept is what a guard knows that outlives the program.
type kept struct {
	Hold   *keptHold  `json:"hold,omitempty"`
	Recent []departed `json:"recent,omitempty"` // what was let through within the window
}

type keptHold struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

// State returns what Resume needs after a restart, or nil if that is nothing. What is held is not part of it: the table has
// that, and the source will say what it lacks.
func (g *Guard) State() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settings.Off {
		return nil
	}
	var k kept
	if g.hold != nil {
		k.Hold = &keptHold{g.hold.id, g.hold.since}
	} else {
		g.forget(g.now())
	}
	k.Recent = g.recent.summary(max(g.settings.Window/steps, time.Second))
	if k.Hold == nil && len(k.Recent) == 0 {
		return nil
	}
	state, err := json.Marshal(k)
	if err != nil {
		panic(err) // of these types it is none
	}
	return state
}

// Resume takes up the state of an earlier run. Losses of the window count. A hold goes on: what the source turns out to have
// lost is held, however little it is. It is called before the source is read.
func (g *Guard) Resume(state []byte) error {
	if len(state) == 0 {
		return nil
	}
	var k kept
	if err := json.Unmarshal(state, &k); err != nil {
		return fmt.Errorf("read the state of the deletion guard: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settings.Off {
		return nil
	}
	g.recent.recall(k.Recent, g.now())
	for kind, n := range g.recent.sum.kinds {
		g.most.kinds[kind] = g.has.kinds[kind] + n
	}
	g.most.objects = g.has.objects + g.recent.sum.objects
	if k.Hold != nil && g.hold == nil {
		g.begin(k.Hold.Since, "it was held before the restart", &hold{id: k.Hold.ID, resumed: true})
	}
	return nil
}
