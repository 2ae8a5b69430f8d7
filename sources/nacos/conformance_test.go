package nacos

import (
	"cmp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/nacos/nacostest"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	for name, forgets := range map[string]bool{"restarts with its data": false, "restarts empty": true} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
				return &harness{t: t, server: nacostest.Start(t), forgets: forgets, revisions: map[string]int{}}
			})
		})
	}
}

// harness is a Nacos with a service of one instance for each object.
type harness struct {
	t       *testing.T
	server  *nacostest.Server
	forgets bool // a restart drops its registrations
	begun   bool // a source has read it: a source without a read cannot keep forgotten registrations
	away    bool
	hold    time.Duration // zero for a usual one

	mu        sync.Mutex
	revisions map[string]int
}

// quickly returns settings with short delays and holds.
func quickly() Settings {
	return Settings{
		Interval: 5 * time.Millisecond, Delay: time.Millisecond, Hold: time.Second, KeepEmpty: 20 * time.Millisecond,
		Resync: time.Minute,
	}
}

func (h *harness) Source() sources.Source {
	h.begun = true
	settings := quickly()
	if h.away { // clients register again before the hold ends
		settings.Hold = time.Hour
	}
	settings.Hold = cmp.Or(h.hold, settings.Hold)
	s, err := New(h.server.Address(), settings)
	require.NoError(h.t, err)
	return s
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "nacos", Name: name + ".default-group"}
}

func (h *harness) Put(name string, revision int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revisions[name] = revision
	h.put(name, revision)
}

func (h *harness) put(name string, revision int) {
	h.server.Put("DEFAULT_GROUP", name, "1", nacostest.Instance("10.0.0.1", 8080, map[string]string{"version": "v" + strconv.Itoa(revision)}))
}

func (h *harness) Delete(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.revisions, name)
	h.server.Delete("DEFAULT_GROUP", name, "1")
	h.server.Unlist("DEFAULT_GROUP", name)
}

func (h *harness) SetHold(hold time.Duration) { h.hold, h.forgets = hold, false }

func (h *harness) Lose(names ...string) {
	if !h.away {
		h.server.Stop()
		defer h.server.Restart()
	}
	for _, name := range names {
		h.Delete(name)
	}
}

func (h *harness) Unreachable() {
	h.away = true
	h.server.Stop()
	if h.forgets && h.begun {
		h.server.Forget()
	}
}

func (h *harness) Deny() { h.server.Deny(true) }

func (h *harness) Restore() {
	h.server.Deny(false)
	h.server.Restart()
	if h.away && h.forgets && h.begun { // its clients register again after a short delay
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
