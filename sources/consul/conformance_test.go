package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	for _, denial := range []misbehaviour{noToken, hidden} {
		t.Run("denied by "+string(denial), func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
				return &harness{t: t, server: newServer(t), denial: denial}
			})
		})
	}
	t.Run("more services than places", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
			return &harness{t: t, server: newServer(t), denial: noToken, settings: Settings{MaxConcurrentWatches: 2}}
		})
	})
}

// harness is a Consul with a service for each object.
type harness struct {
	t        *testing.T
	server   *server
	denial   misbehaviour
	settings Settings
}

func (h *harness) Source() sources.Source {
	s := h.settings
	s.Grace, s.ResetHold = 20*time.Millisecond, 20*time.Millisecond
	s.Mapping.Aliases = "none"
	source, err := New(Scheme+"://"+h.server.address(), s)
	require.NoError(h.t, err)
	return source
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: "ServiceEntry", Namespace: "consul", Name: name}
}

func (h *harness) Put(name string, revision int) {
	h.server.put(name, instance(name, name+"-1", fmt.Sprintf("10.0.1.%d", revision), 80))
}

func (h *harness) Delete(name string) { h.server.remove(name) }
func (h *harness) Unreachable()       { h.server.misbehave(noLeader) }
func (h *harness) Deny()              { h.server.misbehave(h.denial) }
func (h *harness) Restore()           { h.server.misbehave(fine) }
