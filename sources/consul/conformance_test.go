package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	for _, denial := range []consultest.Misbehaviour{consultest.NoToken, consultest.Hidden} {
		t.Run("denied by "+string(denial), func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
				return &harness{t: t, server: consultest.New(t), denial: denial}
			})
		})
	}
	t.Run("more services than places", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
			return &harness{t: t, server: consultest.New(t), denial: consultest.NoToken, settings: Settings{MaxConcurrentWatches: 2}}
		})
	})
}

// harness is a Consul with a service for each object.
type harness struct {
	t        *testing.T
	server   *consultest.Server
	denial   consultest.Misbehaviour
	settings Settings
}

func (h *harness) Source() sources.Source {
	s := h.settings
	s.Grace, s.ResetHold = 20*time.Millisecond, 20*time.Millisecond
	s.Mapping.Aliases = "none"
	source, err := New(Scheme+"://"+h.server.Address(), s)
	require.NoError(h.t, err)
	return source
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: "ServiceEntry", Namespace: "consul", Name: name}
}

func (h *harness) Put(name string, revision int) {
	h.server.Put(name, consultest.Instance(name, name+"-1", fmt.Sprintf("10.0.1.%d", revision), 80))
}

func (h *harness) Delete(name string) { h.server.Remove(name) }
func (h *harness) Unreachable()       { h.server.Misbehave(consultest.NoLeader) }
func (h *harness) Deny()              { h.server.Misbehave(h.denial) }
func (h *harness) Restore()           { h.server.Misbehave(consultest.Fine) }
