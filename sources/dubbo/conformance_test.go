package dubbo

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consul/consultest"
	"tributary/sources/dubbo/nacos"
	"tributary/sources/dubbo/zookeeper"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/nacos/nacostest"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, level := range map[string]level{"interfaces": interfaces{}, "applications": applications{}} {
		for how, expire := range map[string]bool{"cut": false, "expired": true} {
			t.Run(name+", sessions "+how, func(t *testing.T) {
				sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
					return &harness{t: t, server: zktest.New(), level: level, expire: expire}
				})
			})
		}
	}
}

// harness is a ZooKeeper with a provider for each object.
type harness struct {
	t      *testing.T
	server *zktest.Server
	level  level
	expire bool
	away   bool
	hold   time.Duration // zero for a short one
}

func (h *harness) SetHold(hold time.Duration) { h.hold = hold }

func (h *harness) Lose(names ...string) {
	if !h.away {
		h.Unreachable()
		defer h.Restore()
	}
	for _, name := range names {
		h.Delete(name)
	}
}

// TestConformanceOfNacos runs the suite at both levels on a Nacos that keeps its data, and on one that restarts empty.
func TestConformanceOfNacos(t *testing.T) {
	t.Parallel()
	for level, application := range map[string]bool{"interfaces": false, "applications": true} {
		for how, forgets := range map[string]bool{"restarts with its data": false, "restarts empty": true} {
			t.Run(level+", "+how, func(t *testing.T) {
				sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
					return &nacosHarness{t: t, server: nacostest.Start(t), application: application, forgets: forgets, revisions: map[string]int{}}
				})
			})
		}
	}
}

// nacosHarness is a Nacos with a provider for each object.
type nacosHarness struct {
	t           *testing.T
	server      *nacostest.Server
	application bool // providers register by application
	forgets     bool // a restart drops its registrations
	begun       bool // a source has read it: a source without a read cannot keep forgotten registrations
	away        bool
	hold        time.Duration // zero for a usual one

	mu        sync.Mutex
	revisions map[string]int
}

func (h *nacosHarness) Source() sources.Source {
	h.begun = true
	settings := quickly()
	settings.Hold = time.Second
	if h.away { // providers register again before the hold ends
		settings.Hold = time.Hour
	}
	settings.Hold = cmp.Or(h.hold, settings.Hold)
	require.NoError(h.t, settings.complete())
	a, err := nacos.ParseAddress(h.server.Address())
	require.NoError(h.t, err)
	source, err := newSource(nacos.New(a, nil, 5*time.Millisecond, time.Minute), "nacos ", settings, nil)
	require.NoError(h.t, err)
	return source
}

func (h *nacosHarness) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "dubbo", Name: name}
}

func (h *nacosHarness) service(name string) string {
	if h.application {
		return name
	}
	return "providers:" + name + "::"
}

func (h *nacosHarness) Put(name string, revision int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revisions[name] = revision
	h.put(name, revision)
}

func (h *nacosHarness) put(name string, revision int) {
	meta := map[string]string{
		"application": "a", "category": "providers", "protocol": "dubbo", "path": name, "interface": name,
		"weight": strconv.Itoa(revision),
	}
	if h.application {
		r := "r" + strconv.Itoa(revision)
		h.server.Config(name, r, fmt.Sprintf(
			`{"app":%q,"revision":%q,"services":{"%s:dubbo":{"name":%q,"protocol":"dubbo","port":20880,"path":%q,"params":{"weight":"%d"}}}}`,
			name, r, name, name, name, revision))
		meta = map[string]string{
			"dubbo.endpoints": `[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision": r,
			"dubbo.metadata.storage-type": "remote",
		}
	}
	h.server.Put("DEFAULT_GROUP", h.service(name), "1", nacostest.Instance("10.0.1.1", 20880, meta))
}

func (h *nacosHarness) Delete(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.revisions, name)
	h.server.Delete("DEFAULT_GROUP", h.service(name), "1")
	h.server.Unlist("DEFAULT_GROUP", h.service(name))
}

func (h *nacosHarness) SetHold(hold time.Duration) { h.hold, h.forgets = hold, false }

func (h *nacosHarness) Lose(names ...string) {
	if !h.away {
		h.server.Stop()
		defer h.server.Restart()
	}
	for _, name := range names {
		h.Delete(name)
	}
}

func (h *nacosHarness) Unreachable() {
	h.away = true
	h.server.Stop()
	if h.forgets && h.begun {
		h.server.Forget()
	}
}

func (h *nacosHarness) Deny() { h.server.Deny(true) }

func (h *nacosHarness) Restore() {
	h.server.Deny(false)
	h.server.Restart()
	if h.away && h.forgets && h.begun { // providers register again after a short delay
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

// level is one at which providers register.
type level interface {
	put(s *zktest.Server, name string, revision int)
	remove(s *zktest.Server, name string)
}

// quickly returns settings with short delays and holds.
func quickly() Settings {
	return Settings{
		Delay: time.Millisecond, Hold: 20 * time.Millisecond, KeepEmpty: 20 * time.Millisecond, Grace: 20 * time.Millisecond, Resync: time.Minute,
	}
}

func sourceOf(t testing.TB, s *zktest.Server, settings Settings) *Source {
	t.Helper()
	require.NoError(t, settings.complete())
	source, err := newSource(zookeeper.WithDial(s.Dial, zookeeper.Address{Group: zookeeper.DefaultGroup}, settings.Resync),
		"zookeeper /dubbo/", settings, nil)
	require.NoError(t, err)
	return source
}

func (h *harness) Source() sources.Source {
	settings := quickly()
	settings.Hold = cmp.Or(h.hold, settings.Hold)
	return sourceOf(h.t, h.server, settings)
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "dubbo", Name: name}
}

func (h *harness) Put(name string, revision int) { h.level.put(h.server, name, revision) }
func (h *harness) Delete(name string)            { h.level.remove(h.server, name) }

func (h *harness) Unreachable() {
	h.away = true
	if h.expire {
		h.server.Expire()
	} else {
		h.server.Cut()
	}
}

func (h *harness) Deny() {
	h.server.Deny("/dubbo")
	h.server.Deny("/services")
}

func (h *harness) Restore() {
	h.server.Allow("/dubbo")
	h.server.Allow("/services")
	h.server.Reconnect()
	h.away = false
}

// interfaces have one provider each. Each revision registers a new node for it.
type interfaces struct{}

func (interfaces) put(server *zktest.Server, name string, revision int) {
	path := "/dubbo/" + name + "/providers/"
	node := func(revision int) string {
		return path + url.QueryEscape(fmt.Sprintf("dubbo://10.0.1.%d:20880/%s?application=a&interface=%s&timestamp=%d", revision, name, name,
			1_700_000_000_000+revision))
	}
	server.Put(node(revision), "127.0.0.1") // first: it never has none
	for previous := range 100 {
		if previous != revision {
			server.Delete(node(previous))
		}
	}
}

func (interfaces) remove(s *zktest.Server, name string) { s.Delete("/dubbo/" + name) }

// applications have one instance each, and its node changes in place.
type applications struct{}

func (applications) put(server *zktest.Server, name string, revision int) {
	server.Put(fmt.Sprintf("/dubbo/metadata/%s/r%d", name, revision), fmt.Sprintf(
		`{"app":%q,"revision":"r%d","services":{"%s:dubbo":{"name":%q,"protocol":"dubbo","port":20880,"path":%q,"params":{"weight":"%d"}}}}`,
		name, revision, name, name, name, revision))
	server.Put("/services/"+name+"/10.0.1.1:20880", fmt.Sprintf(
		`{"name":%q,"id":"10.0.1.1:20880","address":"10.0.1.1","port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,`+
			`\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"r%d","dubbo.metadata.storage-type":"remote"}}}`,
		name, revision))
}

func (applications) remove(s *zktest.Server, name string) { s.Delete("/services/" + name) }

// TestConformanceOfConsul runs the suite at both levels on a Consul that refuses a token, and on one that hides everything from it.
func TestConformanceOfConsul(t *testing.T) {
	t.Parallel()
	for level, application := range map[string]bool{"interfaces": false, "applications": true} {
		for _, denial := range []consultest.Misbehaviour{consultest.NoToken, consultest.Hidden} {
			t.Run(level+", denied by "+string(denial), func(t *testing.T) {
				sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
					return &consulHarness{
						t: t, server: consultest.New(t), application: application, denial: denial, names: map[string]bool{},
					}
				})
			})
		}
	}
}

// consulHarness is a Consul with a provider for each object.
type consulHarness struct {
	t           *testing.T
	server      *consultest.Server
	application bool // providers register by application
	denial      consultest.Misbehaviour
	hold        time.Duration // zero for a short one
	losses      uint64
	names       map[string]bool
}

// manyIndexes is how far the index of a Consul goes back at a loss.
const manyIndexes = 1000

func (h *consulHarness) SetHold(hold time.Duration) {
	h.hold = hold
	h.server.Change(func(uint64) { h.server.Index = 1000 * manyIndexes })
}

func (h *consulHarness) Lose(names ...string) {
	h.losses++
	for _, name := range names {
		delete(h.names, name)
	}
	h.server.WipeTo((1000-h.losses)*manyIndexes, slices.Collect(maps.Keys(h.names))...)
}

func (h *consulHarness) Source() sources.Source {
	settings := quickly()
	settings.Mapping.VIPs = "none"
	reading := consul.Settings{ResetHold: cmp.Or(h.hold, 20*time.Millisecond)}
	source, err := NewConsul("consul://"+h.server.Address(), reading, settings)
	require.NoError(h.t, err)
	return source
}

func (h *consulHarness) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "dubbo", Name: name}
}

func (h *consulHarness) Put(name string, revision int) {
	h.names[name] = true
	serviceEntry := inService(name, "10.0.1.1", "", "passing")
	serviceEntry.Service.Meta["url"] += "&weight=" + strconv.Itoa(revision)
	if h.application {
		r := "r" + strconv.Itoa(revision)
		h.server.Set(name+":"+r, fmt.Sprintf(
			`{"app":%q,"revision":%q,"services":{"%s:dubbo":{"name":%q,"protocol":"dubbo","port":20880,"path":%q,"params":{"weight":"%d"}}}}`,
			name, r, name, name, name, revision))
		serviceEntry.Service.Meta, serviceEntry.Service.Tags = nil, []string{
			`dubbo.endpoints=[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision=" + r,
			"dubbo.metadata.storage-type=remote",
		}
	}
	h.server.Put(name, serviceEntry)
}

func (h *consulHarness) Delete(name string) {
	delete(h.names, name)
	h.server.Remove(name)
}

func (h *consulHarness) Unreachable() { h.server.Misbehave(consultest.NoLeader) }
func (h *consulHarness) Deny()        { h.server.Misbehave(h.denial) }
func (h *consulHarness) Restore()     { h.server.Misbehave(consultest.Fine) }
