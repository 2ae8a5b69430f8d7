package consultest

import (
	"testing"
	"time"
)

// Denials are the ways in which Consul denies a token.
var Denials = map[string]func(*Datacenter){
	"403":    func(d *Datacenter) { d.Fail(NoToken) },
	"hiding": (*Datacenter).Hide,
}

// Harness is the part of a harness of package sourcetest that concerns Consul. The rest puts services.
type Harness struct {
	*Server

	T      *testing.T
	Denial func(*Datacenter)
	Hold   time.Duration // zero for a short one

	losses uint64
}

// NewHarness returns a harness with a server.
func NewHarness(t *testing.T, denial func(*Datacenter)) *Harness {
	return &Harness{Server: New(t), T: t, Denial: denial}
}

// manyIndexes is how far the index goes back at a loss.
const manyIndexes = 1000

// SetHold implements sourcetest.Holder.
func (h *Harness) SetHold(hold time.Duration) {
	h.Hold = hold
	h.Index = 1000 * manyIndexes
}

// Lose implements sourcetest.Holder.
func (h *Harness) Lose(names ...string) {
	h.losses++
	h.Edit(func() {
		for _, name := range names {
			delete(h.Services, name)
		}
		h.Datacenter.Lose((1000-h.losses)*manyIndexes, h.contents()...)
	})
}

// Unreachable implements sourcetest.Harness.
func (h *Harness) Unreachable() { h.Fail(NoLeader) }

// Deny implements sourcetest.Denier.
func (h *Harness) Deny() { h.Denial(h.Datacenter) }

// Delete implements sourcetest.Harness.
func (h *Harness) Delete(name string) { h.Remove(name) }
