package eureka

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/fetch"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/registry"
)

// shelf is a sink that keeps contents and notes, for several runs.
type shelf struct {
	mu     sync.Mutex
	groups map[string]sources.Content
	note   []byte
	notes  int
	synced bool
	health sources.Health
}

func newShelf() *shelf { return &shelf{groups: map[string]sources.Content{}} }

func (s *shelf) Replace(group string, rs []*resource.Resource, rejects ...sources.Reject) error {
	return s.ReplaceAll([]sources.Content{{Group: group, Resources: rs, Rejects: rejects}})
}

func (s *shelf) ReplaceAll(contents []sources.Content) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range contents {
		if s.groups[c.Group] = c; len(c.Resources)+len(c.Rejects)+len(c.LeftOut) == 0 {
			delete(s.groups, c.Group)
		}
	}
	return nil
}

func (s *shelf) Groups() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.groups))
}

func (s *shelf) Published(group string) []*resource.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[group].Resources
}

func (s *shelf) Exact(string) bool { return true }

func (s *shelf) Synced() { s.mu.Lock(); s.synced = true; s.mu.Unlock() }

func (s *shelf) Report(h sources.Health) { s.mu.Lock(); s.health = h; s.mu.Unlock() }

func (s *shelf) LastNote() []byte { s.mu.Lock(); defer s.mu.Unlock(); return s.note }

func (s *shelf) Keep(note []byte) { s.mu.Lock(); s.note = note; s.notes++; s.mu.Unlock() }

// endpoints returns the published addresses, by the names of objects.
func (s *shelf) endpoints(t *testing.T) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	addresses := map[string][]string{}
	for _, c := range s.groups {
		for _, r := range c.Resources {
			spec, err := r.Spec()
			require.NoError(t, err)
			list := []string{}
			for _, e := range spec.(*networking.ServiceEntry).Endpoints {
				list = append(list, e.Address)
			}
			addresses[r.Key().Name] = list
		}
	}
	return addresses
}

func (s *shelf) state() (sources.State, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health.State, s.health.Message
}

// runs runs a source on the shelf until stop is called.
func (s *shelf) runs(t *testing.T, server *eurekatest.Server, change ...func(*Settings)) (stop func()) {
	settings := quickly()
	settings.Hold, settings.KeepEmpty = time.Hour, time.Hour
	for _, f := range change {
		f(&settings)
	}
	source, err := New(server.Address(), settings)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- source.Run(ctx, s) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
	})
	t.Cleanup(stop)
	return stop
}

func (s *shelf) awaits(t *testing.T, condition string, ok func() bool) {
	t.Helper()
	if !assert.Eventually(t, ok, 20*time.Second, time.Millisecond, condition) {
		state, message := s.state()
		require.Fail(t, condition, "it has %v, %v: %s", s.endpoints(t), state, message)
	}
}

// awaitEndpoints waits until a service has a number of endpoints.
func (s *shelf) awaitEndpoints(t *testing.T, service string, count int) {
	t.Helper()
	s.awaits(t, service+" is read", func() bool { return len(s.endpoints(t)[service]) == count })
}

func put(server *eurekatest.Server, app string, ips ...string) {
	for _, ip := range ips {
		server.Put(app, eurekatest.Instance(ip, ip, 80, nil))
	}
}

// TestRestarts has a run begin where an earlier one ended: with a server that goes on, and with one that is empty.
func TestRestarts(t *testing.T) {
	server, s := eurekatest.Start(t), newShelf()
	put(server, "orders", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	stop := s.runs(t, server)
	published := func(ips ...string) func() bool {
		return func() bool { return slices.Equal(s.endpoints(t)["orders"], ips) && s.LastNote() != nil }
	}
	s.awaits(t, "all", published("10.0.0.1", "10.0.0.2", "10.0.0.3"))
	stop()
	server.Delete("orders", "10.0.0.3")
	stop = s.runs(t, server)
	s.awaits(t, "the deregistered instance is gone, because the server kept its data", published("10.0.0.1", "10.0.0.2"))
	stop()
	server.Forget()
	put(server, "orders", "10.0.0.1")
	for range 2 {
		before := server.Requests("/apps/delta")
		stop = s.runs(t, server)
		s.awaits(t, "it is read", func() bool { return server.Requests("/apps/delta") > before+2 })
		state, message := s.state()
		require.Equal(t, sources.Degraded, state)
		require.Contains(t, message, "1 endpoint is not listed and stays")
		stop()
		require.True(t, published("10.0.0.1", "10.0.0.2")(), "both the server and the source restarted")
	}
	stop = s.runs(t, server, func(set *Settings) { set.Hold = time.Millisecond })
	s.awaits(t, "it was held for long enough", published("10.0.0.1"))
	server.Delete("orders", "10.0.0.1")
	s.awaits(t, "the last one went", published())
	stop()
	_ = s.runs(t, server, func(set *Settings) { set.Skip = []string{"orders"} })
	s.awaits(t, "it is not to be read", func() bool { return len(s.endpoints(t)) == 0 })
}

// TestMalformedNote_Ignored has a run start with a note that it cannot read.
func TestMalformedNote_Ignored(t *testing.T) {
	server, s := eurekatest.Start(t), &shelf{groups: map[string]sources.Content{}, note: []byte(`{"marks":5}`)}
	put(server, "orders", "10.0.0.1")
	s.runs(t, server)
	s.awaitEndpoints(t, "orders", 1)
}

// TestMalformedInstance_DoesNotBlockOthers has one there from the start, and one that becomes so.
func TestMalformedInstance_DoesNotBlockOthers(t *testing.T) {
	server, s := eurekatest.Start(t), newShelf()
	bad := func(id string) {
		i := eurekatest.Instance(id, "", 80, nil)
		i["ipAddr"] = []string{"odd"}
		server.Put("orders", i)
	}
	bad("10.0.0.9")
	put(server, "orders", "10.0.0.1", "10.0.0.2")
	s.runs(t, server)
	s.awaitEndpoints(t, "orders", 2)
	bad("10.0.0.1")
	put(server, "carts", "10.0.0.1")
	s.awaitEndpoints(t, "carts", 1)
	require.Len(t, s.endpoints(t)["orders"], 2, "the last readable version of the malformed instance counts")
	s.awaits(t, "the status counts it", func() bool {
		_, message := s.state()
		return strings.Contains(message, "1 endpoint is not listed and stays (eureka vip orders)")
	})
	state, message := s.state()
	require.Equal(t, sources.Degraded, state)
	require.Contains(t, message, `app "ORDERS" instance "10.0.0.9" cannot be read: json: cannot unmarshal array`)
	require.NotContains(t, message, "until")
	require.True(t, s.synced)
}

// TestTwoPortsWithOneNumber has the secure port of a service rejected by name, and serves the other.
func TestTwoPortsWithOneNumber(t *testing.T) {
	server, s := eurekatest.Start(t), newShelf()
	i := eurekatest.Instance("a", "10.0.0.1", 80, nil)
	i["securePort"] = map[string]any{"$": 80, "@enabled": "true"}
	server.Put("orders", i)
	s.runs(t, server)
	s.awaitEndpoints(t, "orders", 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.groups["orders"].Rejects, 1)
	require.ErrorContains(t, s.groups["orders"].Rejects[0].Err,
		"eureka vip orders (secure): port 80 is the service's plain one already")
}

func TestEmptySelection_ReportedInStatus(t *testing.T) {
	server, s := eurekatest.Start(t), newShelf()
	put(server, "orders", "10.0.0.1")
	put(server, "carts", "10.0.0.2")
	stop := s.runs(t, server, func(settings *Settings) { settings.Apps = []string{"order"} })
	s.awaits(t, "the status reports it", func() bool {
		state, text := s.state()
		return state == sources.Healthy && text == "none of 2 applications is selected"
	})
	stop()
}

func TestHealth(t *testing.T) {
	server, s := eurekatest.Start(t), newShelf()
	server.Ask("me:word")
	stop := s.runs(t, server)
	s.awaits(t, "it is denied", func() bool { state, _ := s.state(); return state == sources.Denied })
	server.Ask("")
	s.awaits(t, "the registry is empty", func() bool {
		state, text := s.state()
		return state == sources.Healthy && text == "there is no instance"
	})
	server.Stop()
	s.awaits(t, "it is away", func() bool { state, _ := s.state(); return state == sources.Unreachable })
	stop()
}

func TestNew(t *testing.T) {
	for message, c := range map[string]struct {
		address  string
		settings Settings
	}{
		"address: want eureka://":    {"nacos://h", Settings{}},
		"apps: \"[\" is no name":     {"eureka://h", Settings{Apps: []string{"["}}},
		"skip: \"\" is no name":      {"eureka://h", Settings{Skip: []string{""}}},
		"interval: want 1ms to 1m0s": {"eureka://h", Settings{PollSettings: registry.PollSettings{Interval: time.Hour}}},
		"hold: want":                 {"eureka://h", Settings{PollSettings: registry.PollSettings{Hold: -1}}},
		"credentialsFile: the address": {"eureka://a:b@h", Settings{
			PollSettings: registry.PollSettings{Settings: fetch.Settings{CredentialsFile: "x"}},
		}},
		"namespace: ": {"eureka://h", func() (s Settings) { s.Mapping.Namespace = "A b"; return s }()},
	} {
		_, err := New(c.address, c.settings)
		require.ErrorContains(t, err, message)
	}
	_, err := New("eureka+https://h", Settings{})
	require.NoError(t, err)
}

// TestLeftOut_NamesInstances has instances that are not to be called, or cannot be.
func TestLeftOut_NamesInstances(t *testing.T) {
	server, s := eurekatest.Start(t), newShelf()
	put(server, "orders", "10.0.0.1", "0.0.0.0")
	for id, change := range map[string]func(map[string]any){
		"10.0.0.2": func(i map[string]any) { i["status"] = "DOWN" },
		"10.0.0.3": func(i map[string]any) { i["overriddenStatus"] = "OUT_OF_SERVICE" },
		"10.0.0.4": func(i map[string]any) { i["port"] = map[string]any{"$": 0, "@enabled": "false"} },
	} {
		i := eurekatest.Instance(id, id, 80, nil)
		change(i)
		server.Put("orders", i)
	}
	lonely := eurekatest.Instance("lonely-1", "0.0.0.0", 80, nil)
	server.Put("lonely", lonely) // the only instance of its host
	broken := eurekatest.Instance("broken-1", "10.0.0.7", 80, nil)
	broken["port"] = map[string]any{"$": "eighty", "@enabled": "true"}
	server.Put("orders", broken)
	stop := s.runs(t, server)
	s.awaits(t, "one is served", func() bool { return slices.Equal(s.endpoints(t)["orders"], []string{"10.0.0.1"}) })
	leftOut := func() (texts []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.groups {
			for _, l := range c.LeftOut {
				texts = append(texts, l.String())
			}
		}
		slices.Sort(texts)
		return texts
	}
	require.Equal(t, []string{
		`0.0.0.0 of ORDERS (address "0.0.0.0": no address that can be called)`, "10.0.0.2:80 of ORDERS (status DOWN)",
		"10.0.0.3:80 of ORDERS (status UP, set to OUT_OF_SERVICE)", "10.0.0.4 of ORDERS (none of its ports is enabled)",
		`broken-1 of ORDERS (cannot be read: port: "eighty" is none, at 10.0.0.7)`,
		`lonely-1 of LONELY (address "0.0.0.0": no address that can be called)`,
	}, leftOut())
	server.Delete("lonely", "lonely-1")
	server.Delete("orders", "broken-1")
	s.awaits(t, "the others only", func() bool { return len(leftOut()) == 4 })
	put(server, "orders", "10.0.0.2")
	put(server, "orders", "10.0.0.3")
	s.awaits(t, "the others only", func() bool { return len(leftOut()) == 2 })
	stop()
}
