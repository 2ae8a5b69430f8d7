package eureka

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/registry"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	for name, how := range map[string]struct{ forgets, silent bool }{
		"restarts with its data": {},
		"restarts empty":         {forgets: true},
		"tells no changes":       {silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
				h := &harness{t: t, server: eurekatest.Start(t), forgets: how.forgets, revisions: map[string]int{}}
				if how.silent {
					h.server.Answer("/apps/delta", 403)
				}
				return h
			})
		})
	}
}

// harness is a Eureka with an application of one instance for each object.
type harness struct {
	t       *testing.T
	server  *eurekatest.Server
	forgets bool // a restart drops its registrations, if a source has read them
	read    bool
	away    bool
	hold    time.Duration // zero for a usual one

	mu        sync.Mutex
	revisions map[string]int
}

// quickly returns settings with short delays and holds.
func quickly() Settings {
	return Settings{PollSettings: registry.PollSettings{
		Interval: 5 * time.Millisecond, Hold: time.Second, KeepEmpty: 20 * time.Millisecond, Resync: time.Minute,
	}}
}

func (h *harness) Source() sources.Source {
	h.read = true
	settings := quickly()
	if h.away { // instances register again before the hold ends
		settings.Hold = time.Hour
	}
	settings.Hold = cmp.Or(h.hold, settings.Hold)
	s, err := New(h.server.Address(), settings)
	require.NoError(h.t, err)
	return s
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "eureka", Name: name}
}

func (h *harness) Put(name string, revision int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revisions[name] = revision
	h.put(name, revision)
}

func (h *harness) put(name string, revision int) {
	meta := map[string]string{"version": "v" + strconv.Itoa(revision)}
	h.server.Put(name, eurekatest.Instance("10.0.0.1:"+name, address(name), 8080, meta))
}

// address is that of the instance of an object: an instance displaces another one at its address.
func address(name string) string {
	sum := crc32.ChecksumIEEE([]byte(name))
	return fmt.Sprintf("10.0.%d.%d", sum>>8&0xff, sum&0xff)
}

func (h *harness) Delete(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.revisions, name)
	h.server.Delete(name, "10.0.0.1:"+name)
}

func (h *harness) SetHold(hold time.Duration) { h.hold, h.forgets = hold, false }

func (h *harness) Lose(names ...string) {
	if !h.away {
		h.server.Stop()
		defer h.server.Restart()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		delete(h.revisions, name)
	}
	h.server.Forget()
	for name, revision := range h.revisions {
		h.put(name, revision)
	}
}

func (h *harness) Unreachable() {
	h.away = true
	h.server.Stop()
	h.forgets = h.forgets && h.read
	if h.forgets {
		h.server.Forget()
	}
}

func (h *harness) Deny() { h.server.Ask("somebody:else") }

func (h *harness) Restore() {
	h.server.Ask("")
	h.server.Restart()
	if h.away && h.forgets { // its instances register again after a short delay
		time.AfterFunc(100*time.Millisecond, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			for name, revision := range h.revisions {
				h.put(name, revision)
			}
		})
	}
	h.away = false
}
