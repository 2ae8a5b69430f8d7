package consul

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, denial := range []consultest.Misbehaviour{consultest.NoToken, consultest.Hidden} {
		t.Run("denied by "+string(denial), func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
				return &harness{t: t, server: consultest.New(t), denial: denial, names: map[string]bool{}}
			})
		})
	}
	t.Run("more services than places", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
			h := &harness{t: t, server: consultest.New(t), denial: consultest.NoToken, names: map[string]bool{}}
			h.settings.MaxConcurrentWatches = 2
			return struct { // without the holds, which take long here
				sourcetest.Harness
				sourcetest.Denier
			}{h, h}
		})
	})
}

// harness is a Consul with a service for each object.
type harness struct {
	t        *testing.T
	server   *consultest.Server
	denial   consultest.Misbehaviour
	settings Settings
	hold     time.Duration // zero for a short one
	losses   uint64
	names    map[string]bool
}

func (h *harness) Source() sources.Source {
	s := h.settings
	s.Grace, s.ResetHold = 20*time.Millisecond, cmp.Or(h.hold, 20*time.Millisecond)
	s.Mapping.Aliases = "none"
	source, err := New(Scheme+"://"+h.server.Address(), s)
	require.NoError(h.t, err)
	return source
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: "ServiceEntry", Namespace: "consul", Name: name}
}

// manyIndexes is how far the index goes back at a loss.
const manyIndexes = 1000

func (h *harness) SetHold(hold time.Duration) {
	h.hold = hold
	h.server.Change(func(uint64) { h.server.Index = 1000 * manyIndexes })
}

func (h *harness) Lose(names ...string) {
	h.losses++
	for _, name := range names {
		delete(h.names, name)
	}
	h.server.WipeTo((1000-h.losses)*manyIndexes, slices.Collect(maps.Keys(h.names))...)
}

func (h *harness) Put(name string, revision int) {
	h.names[name] = true
	h.server.Put(name, consultest.Instance(name, name+"-1", fmt.Sprintf("10.0.1.%d", revision), 80))
}

func (h *harness) Delete(name string) {
	delete(h.names, name)
	h.server.Remove(name)
}

func (h *harness) Unreachable() { h.server.Misbehave(consultest.NoLeader) }
func (h *harness) Deny()        { h.server.Misbehave(h.denial) }
func (h *harness) Restore()     { h.server.Misbehave(consultest.Fine) }
