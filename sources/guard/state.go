package guard

import (
	"encoding/json"
	"fmt"
	"time"

	"tributary/resource"
)

// steps is how many of a window's parts losses are told apart by over a restart.
const steps = 60

// kept is what a guard knows that outlives the program.
type kept struct {
	Hold   *keptHold  `json:"hold,omitempty"`
	Recent []departed `json:"recent,omitempty"` // what was let through within the window
	// Most and MostOf are the objects that there were at one time of the window, in all and by kind.
	Most   int                   `json:"most,omitempty"`
	MostOf map[resource.Kind]int `json:"mostOf,omitempty"`
}

type keptHold struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	Below time.Time `json:"below,omitzero"` // since when it has been below the limits
	// Grew and Passed are the same of a hold.
	Grew   time.Time  `json:"grew,omitzero"`
	Passed []departed `json:"passed,omitempty"`
}

// State returns what Resume needs after a restart besides what is served and Held, or nil if that is nothing.
func (g *Guard) State() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settings.Off {
		return nil
	}
	var k kept
	step := max(g.settings.Window/steps, time.Second)
	if h := g.hold; h != nil {
		k.Hold = &keptHold{h.id, h.since, h.why, h.below, h.grew, h.passed.summary(step)}
	} else {
		g.forget(g.now())
	}
	k.Recent = g.recent.summary(step)
	if k.Hold == nil && len(k.Recent) == 0 {
		return nil
	}
	k.Most, k.MostOf = g.most.objects, g.most.kinds
	state, err := json.Marshal(k)
	if err != nil {
		panic(err) // of these types it is none
	}
	return state
}

// Loss is one that was held: what was before it, and what the source said, which is nil if the object was gone.
type Loss struct{ Was, Said *resource.Resource }

// Resume takes up what an earlier run had: its state, and the losses that it held. Losses of the window count. A hold goes on as if there
// had been no restart, whether the source can be read or not. Where the state cannot be read, what was held is, in a hold that begins now.
func (g *Guard) Resume(state []byte, held map[resource.Key]Loss) error {
	var k kept
	var unread error
	if len(state) > 0 {
		if err := json.Unmarshal(state, &k); err != nil {
			k, unread = kept{}, fmt.Errorf("read the state of the deletion guard: %w", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.settings.Off {
		g.recent.recall(k.Recent, g.now())
		for kind, n := range k.MostOf {
			g.most.kinds[kind] = max(g.most.kinds[kind], n)
		}
		g.most.objects = max(g.most.objects, k.Most)
	}
	if g.hold == nil {
		g.retain(k.Hold, held)
	}
	return unread
}

// retain begins a hold with what an earlier one held. The caller holds mu.
func (g *Guard) retain(as *keptHold, held map[resource.Key]Loss) {
	now, before := g.now(), g.table.Snapshot()
	h := &hold{id: identify(now, g.last), since: now, why: "it was held before the restart", grew: now}
	if as != nil {
		h.id, h.since, h.why, h.below, h.grew = as.ID, as.Since, as.Why, as.Below, as.Grew
		if h.below.After(now) { // the clock stepped back
			h.below = now
		}
		if h.grew.IsZero() || h.grew.After(now) {
			h.grew = now
		}
		h.passed.recall(as.Passed, now)
	}
	var puts []*resource.Resource
	for key, l := range held {
		if served := before.Get(key); served != nil {
			puts = append(puts, h.add(loss{key: key, was: l.Was, desired: l.Said}))
		}
	}
	if h.size() == 0 {
		return
	}
	h.touched = nil
	g.hold, g.last = h, h.id
	if g.settings.Off {
		g.release("the guard was turned off")
		return
	}
	g.holds++
	g.tell(news{resumed: true, id: h.id, why: h.why})
	g.commit(puts, nil, now)
	g.look(now)
}
