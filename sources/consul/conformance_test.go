package consul

import (
	"cmp"
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
	t.Parallel()
	for name, denial := range consultest.Denials {
		t.Run("denied by "+name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness { return &harness{Harness: consultest.NewHarness(t, denial)} })
		})
	}
	t.Run("more services than places", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
			h := &harness{consultest.NewHarness(t, consultest.Denials["403"]), Settings{MaxConcurrentWatches: 2}}
			return struct { // without the holds, which take long here
				sourcetest.Harness
				sourcetest.Denier
			}{h, h}
		})
	})
}

// harness is a Consul with a service for each object.
type harness struct {
	*consultest.Harness

	settings Settings
}

func (h *harness) Source() sources.Source {
	s := h.settings
	s.Grace, s.ResetHold = 20*time.Millisecond, cmp.Or(h.Hold, 20*time.Millisecond)
	s.Mapping.Aliases = "none"
	source, err := New(Scheme+"://"+h.Address(), s)
	require.NoError(h.T, err)
	return source
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: "ServiceEntry", Namespace: "consul", Name: name}
}

func (h *harness) Put(name string, revision int) {
	h.Server.Put(name, consultest.Instance(name, name+"-1", fmt.Sprintf("10.0.1.%d", revision), 80))
}
