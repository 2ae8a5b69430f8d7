package lastgood

import (
	"sync"

	"tributary/resource"
)

// Guard is what stands in front of the table of a source, and has it be other than the source says. Its methods may be called
// at any time.
type Guard interface {
	// State returns what there is to know of the guard as a whole. It is kept with each write.
	State() []byte
	// Held returns the loss of an object in the table that is held, if there is one: what was before it, and what the source says,
	// which is nil if the object is gone. That it is another is told by SetHeld.
	Held(key resource.Key) (was, said *resource.Resource, held bool)
}

// Held is a loss that was held: an object as it was before, and as the source says, which is nil if it was gone. What was served
// may be made of both.
type Held struct{ Was, Said *resource.Resource }

// unguarded is the guard of a source that has none.
type unguarded struct{}

func (unguarded) State() []byte { return nil }

func (unguarded) Held(resource.Key) (was, said *resource.Resource, held bool) { return nil, nil, false }

// pending are the keys of which it is still to be written what is held. They are safe for concurrent use.
type pending struct {
	mu   sync.Mutex
	keys map[resource.Key]struct{}
}

func (p *pending) add(keys []resource.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys == nil {
		p.keys = make(map[resource.Key]struct{}, len(keys))
	}
	for _, k := range keys {
		p.keys[k] = struct{}{}
	}
}

// take returns the keys, once.
func (p *pending) take() (keys []resource.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.keys {
		keys = append(keys, k)
	}
	p.keys = nil
	return keys
}
