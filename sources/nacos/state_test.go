package nacos

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
	"tributary/sources/registry"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

var orders = key{"DEFAULT_GROUP", "orders"}

// book is a state with one group, and what the tests ask of it.
type book struct {
	*state
	t *testing.T
}

func newBook(t *testing.T) *book {
	m, err := mapping.New(mapping.Options{}, "public", nil)
	require.NoError(t, err)
	b := &book{newState(m, Settings{Groups: []string{"DEFAULT_GROUP"}, KeepEmpty: time.Hour}), t}
	b.Return(start, time.Minute)
	return b
}

// has are instances with these addresses.
func has(ips ...string) (all []client.Instance) {
	for _, ip := range ips {
		all = append(all, client.Instance{IP: ip, Port: 80, Weight: 1, Healthy: true, Enabled: true})
	}
	return all
}

// believed returns the addresses of what is believed of orders, or nil if there is no such service.
func (b *book) believed(at time.Time) (all []string) {
	b.t.Helper()
	b.Contents(at)
	if services, _ := b.Services(); services > 0 {
		all = []string{}
	}
	b.Endpoints(func(_ mapping.ID, k registry.Known) { all = append(all, k.Value.Address) })
	return all
}

// published returns what an earlier run that saw these instances published of orders.
func published(t *testing.T, all ...client.Instance) []*resource.Resource {
	b := newBook(t)
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, all, nil, nil)
	return b.Contents(at(0))[0].Resources
}

func TestAServerThatComesBackWithPartialListsLosesNothing(t *testing.T) {
	b := newBook(t)
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, has("10.0.0.1", "10.0.0.2"), nil, nil)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(at(0)))
	later := 10 * time.Minute
	b.Return(at(later), time.Minute)
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(at(later)), "nothing is listed")
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, has("10.0.0.3"), nil, nil)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, b.believed(at(later+time.Second)), "one that is new counts at once")
	b.takeInstances(orders, has("10.0.0.1"), nil, nil)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(at(later+2*time.Second)), "and goes at once")
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(later+time.Minute)), "what has not come back by then is gone")
	b.takeInstances(orders, nil, nil, nil)
	require.Equal(t, []string{}, b.believed(at(later+2*time.Minute)), "the last one leaves the service without endpoints")
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.Equal(t, []string{}, b.believed(at(later+time.Hour)))
	require.Nil(t, b.believed(at(later+time.Hour+2*time.Minute)), "and that is kept for so long only")
	require.Empty(t, b.services)
}

// TestInDoubt is the table of what counts of an instance that was known before Nacos was away.
func TestInDoubt(t *testing.T) {
	one := has("10.0.0.1")[0]
	change := func(f func(*client.Instance)) []client.Instance { c := one; f(&c); return []client.Instance{c} }
	for name, c := range map[string]struct {
		now   []client.Instance
		stays bool
	}{
		"it is listed":             {[]client.Instance{one}, true},
		"it is not":                {nil, true},
		"it is unhealthy":          {change(func(i *client.Instance) { i.Healthy = false }), true},
		"it is disabled":           {change(func(i *client.Instance) { i.Enabled = false }), false},
		"it has no weight":         {change(func(i *client.Instance) { i.Weight = 0 }), false},
		"it is in another cluster": {change(func(i *client.Instance) { i.Cluster = "other" }), true},
	} {
		b := newBook(t)
		b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
		b.takeInstances(orders, []client.Instance{one}, nil, nil)
		b.believed(at(0))
		b.Return(at(time.Minute), time.Minute)
		b.takeInstances(orders, c.now, nil, nil)
		require.Equal(t, c.stays, len(b.believed(at(time.Minute))) > 0, name)
	}
}

func TestWhatAnEarlierRunPublishedStaysUntilItIsKnown(t *testing.T) {
	b, one := newBook(t), has("10.0.0.1")[0]
	one.Metadata = map[string]string{"service-port": "8000", "protocol": "http"}
	b.restore("DEFAULT_GROUP@@orders", published(t, one), Settings{})
	require.Empty(t, b.Contents(at(0)))
	b.takeNames("DEFAULT_GROUP", nil, errors.New("no"))
	require.False(t, b.settled(), "nothing was read")
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.True(t, b.settled())
	_, port, _ := registry.ReadEntry(b.Contents(at(0))[0].Resources[0])
	require.Equal(t, registry.Port{Number: 8000, Protocol: "HTTP"}, port)
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(0)))
	require.Equal(t, []string{}, b.believed(at(time.Minute)))
}

// TestWhatCannotBeToldStays has an earlier run with transforms, of which only the groups are known.
func TestWhatCannotBeToldStays(t *testing.T) {
	b := newBook(t)
	b.restore("DEFAULT_GROUP@@orders", nil, Settings{})
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.Empty(t, b.Contents(at(0)))
	require.Equal(t, at(time.Minute), b.Next())
	require.Len(t, b.Contents(at(time.Minute)), 1)
	b = newBook(t)
	b.restore("DEFAULT_GROUP@@orders", nil, Settings{})
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, has("10.0.0.1"), nil, nil)
	require.Len(t, b.Contents(at(0)), 1)
}

func TestSettled(t *testing.T) {
	b := newBook(t)
	require.False(t, b.settled())
	b.takeNames("DEFAULT_GROUP", []string{"orders", "carts"}, nil)
	require.False(t, b.settled())
	b.takeInstances(orders, nil, nil, errors.New("no"))
	b.takeInstances(key{"DEFAULT_GROUP", "carts"}, nil, nil, errors.New("no"))
	require.False(t, b.settled(), "nothing of it can be read")
	b.takeInstances(orders, has("10.0.0.1"), nil, nil)
	require.True(t, b.settled(), "one that cannot be read holds up no other")
	texts, all, first := b.problems()
	require.Len(t, texts, 1)
	require.Error(t, first)
	require.False(t, all)
}

func TestInstancesOfDubboAreNone(t *testing.T) {
	b := newBook(t)
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	all := has("10.0.0.1", "10.0.0.2")
	all[0].Metadata = map[string]string{"dubbo.metadata.revision": "x"}
	b.takeInstances(orders, all, nil, nil)
	require.Equal(t, []string{"10.0.0.2"}, b.believed(at(0)))
	s := Settings{Skip: []string{"a*"}}
	require.False(t, s.selects("providers:com.acme.Demo::"))
	require.False(t, s.selects("abc"))
	require.True(t, s.selects("orders"))
}

// TestAHoldDoesNotEndWhileNacosIsAwayAgain has it go before those could register anew who were in doubt.
func TestAHoldDoesNotEndWhileNacosIsAwayAgain(t *testing.T) {
	b := newBook(t)
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, has("10.0.0.1"), nil, nil)
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(0)))
	b.Return(at(time.Minute), time.Minute)
	b.takeNames("DEFAULT_GROUP", nil, nil)
	b.Leave(at(90 * time.Second))
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(time.Hour)))
	b.Return(at(time.Hour), time.Minute)
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(time.Hour)))
	require.Equal(t, []string{}, b.believed(at(time.Hour+time.Minute)))
}

// notebook is a sink that keeps notes.
type notebook struct {
	sources.Sink
	note []byte
}

func (n *notebook) Kept() []byte     { return n.note }
func (n *notebook) Keep(note []byte) { n.note = note }

// TestHold_EndsThoughNothingLasts cuts the connection, restarts tributary, or both, each eight seconds. Whoever left goes after a hold.
func TestHold_EndsThoughNothingLasts(t *testing.T) {
	for name, c := range map[string]struct {
		cut, restart bool
		jump         time.Duration // of the clock at the first restart
	}{
		"cut":                 {cut: true},
		"restart":             {restart: true},
		"both":                {cut: true, restart: true},
		"the clock goes back": {restart: true, jump: -time.Hour},
	} {
		r, left, kept, clock := newRun(t, "", "DEFAULT_GROUP"), has("10.0.0.2"), &notebook{}, time.Duration(0)
		read := func(all []client.Instance) []string {
			r.state.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
			r.state.takeInstances(orders, all, nil, nil)
			b := r.gather(at(clock))
			kept.note = registry.KeepNote(kept, b.Note, kept.note)
			var addresses []string
			r.state.Endpoints(func(_ mapping.ID, k registry.Known) {
				addresses = append(addresses, k.Value.Address)
			})
			return addresses
		}
		r.down = nil
		require.Len(t, read(has("10.0.0.1", "10.0.0.2")), 2, name)
		clock = time.Second
		r.state.Return(at(clock), time.Minute)
		require.Len(t, read(left), 2, name)
		for n := range 9 {
			require.NotEmpty(t, read(left), name)
			clock += 8 * time.Second
			if c.cut {
				r.state.Leave(at(clock))
				kept.note = registry.KeepNote(kept, r.gather(at(clock)).Note, kept.note)
				clock += time.Second
			}
			if c.restart {
				if n == 0 {
					clock += c.jump
				}
				before := r.state
				r = newRun(t, "", "DEFAULT_GROUP")
				before.Endpoints(func(id mapping.ID, k registry.Known) {
					r.state.services[orders] = &service{settled: true}
					resources, _, err := r.mapper.Entries([]registry.Service[mapping.ID]{{
						ID: id, Name: registry.Name{Host: "orders.test", Object: "orders"}, Port: registry.Port{Number: 80, Protocol: "HTTP"},
						Endpoints: []registry.Endpoint{k.Value},
					}})
					require.NoError(t, err)
					r.state.Restore("DEFAULT_GROUP@@orders", resources, func(registry.Service[mapping.ID]) bool { return true })
				})
				r.down = nil
				r.state.Resume(kept, at(clock))
			}
			r.state.Return(at(clock), time.Minute)
		}
		require.Equal(t, []string{"10.0.0.2"}, read(left), name)
	}
}

// newRun is a run of a source with such a host template and groups, connected at the start.
func newRun(t *testing.T, template string, groups ...string) *run {
	m, err := mapping.New(mapping.Options{MappingOptions: registry.MappingOptions{HostTemplate: template}}, "public", nil)
	require.NoError(t, err)
	r := &run{Source: &Source{settings: Settings{KeepEmpty: time.Hour, Hold: time.Minute, Groups: groups}, mapper: m, counts: newCounts()}}
	r.state, r.wakeup = newState(m, r.settings), registry.NewWakeup()
	r.state.Return(start, time.Minute)
	return r
}

// TestAnEmptyClusterGoes has a cluster that is a host of its own lose its last instance, while others of the service have some.
func TestAnEmptyClusterGoes(t *testing.T) {
	r := newRun(t, "{cluster}.{service}.{group}", "DEFAULT_GROUP")
	in := func(cluster, ip string) client.Instance {
		i := has(ip)[0]
		i.Cluster = cluster
		return i
	}
	r.state.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	r.state.takeInstances(orders, []client.Instance{in("c1", "10.0.0.1"), in("c2", "10.0.0.2")}, nil, nil)
	r.gather(at(0))
	r.gather(at(2 * time.Minute))
	r.state.takeInstances(orders, []client.Instance{in("c2", "10.0.0.2")}, nil, nil)
	b := r.gather(at(3 * time.Minute))
	require.Len(t, b.Contents[0].Resources, 2, "it is kept without endpoints")
	require.LessOrEqual(t, b.Next, time.Hour)
	b = r.gather(at(3*time.Minute + time.Hour))
	require.Len(t, b.Contents[0].Resources, 1, "for keepEmpty")
}

// TestAGroupThatWasNeverRead keeps a source from being synced, and holds up no other.
func TestAGroupThatWasNeverRead(t *testing.T) {
	r := newRun(t, "", "A", "B")
	r.state.takeNames("A", []string{"orders"}, nil)
	r.state.takeInstances(key{"A", "orders"}, has("10.0.0.1"), nil, nil)
	r.state.takeNames("B", nil, errors.New("no answer in 5s"))
	b := r.gather(at(0))
	require.Len(t, b.Contents, 1)
	require.False(t, b.Synced, "nothing is known of one")
	r.state.takeNames("B", nil, nil)
	require.True(t, r.gather(at(time.Second)).Synced)
	require.False(t, r.gather(at(2*time.Second)).Synced, "it is said once")
}

// TestClustersAreNotReadFromLabels has what an earlier run published be disabled, or be listed as it was, in clusters whose names can be a
// label, or cannot.
func TestClustersAreNotReadFromLabels(t *testing.T) {
	for _, cluster := range []string{"", "DEFAULT", "east", "上海"} {
		i := has("10.0.0.1")[0]
		i.Cluster = cluster
		r := published(t, i)
		for _, enabled := range []bool{true, false} {
			next := newBook(t)
			next.restore("DEFAULT_GROUP@@orders", r, Settings{})
			next.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
			i.Enabled = enabled
			next.takeInstances(orders, []client.Instance{i}, nil, nil)
			require.Len(t, next.believed(at(time.Second)), map[bool]int{true: 1, false: 0}[enabled], "%s %t", cluster, enabled)
			_, held := next.Services()
			require.Zero(t, held)
		}
	}
}

// TestReplicasServeTheSamePort has two of them see the same, one of which was there before.
func TestReplicasServeTheSamePort(t *testing.T) {
	on := func(ports ...int) (all []client.Instance) {
		for n, port := range ports {
			i := has(fmt.Sprintf("10.0.0.%d", n+1))[0]
			i.Port = port
			all = append(all, i)
		}
		return all
	}
	port := func(b *book, at time.Time, all []client.Instance) uint32 {
		b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
		b.takeInstances(orders, all, nil, nil)
		_, port, ok := registry.ReadEntry(b.Contents(at)[0].Resources[0])
		require.True(t, ok)
		return port.Number
	}
	early, late := newBook(t), newBook(t)
	require.EqualValues(t, 8080, port(early, at(time.Hour), on(8080, 8080, 9090)))
	require.EqualValues(t, 9090, port(early, at(time.Hour), on(8080, 9090, 9090)))
	require.EqualValues(t, 9090, port(late, at(time.Hour), on(8080, 9090, 9090)))
	early.Return(at(2*time.Hour), time.Minute)
	require.EqualValues(t, 9090, port(early, at(2*time.Hour), on(8080)), "while others are in doubt it stays")
}

// TestWhatIsLeftOut is the table of what is said of an instance that is not served.
func TestWhatIsLeftOut(t *testing.T) {
	for why, change := range map[string]func(*client.Instance){
		"":            func(*client.Instance) {},
		"weight 0":    func(i *client.Instance) { i.Weight = 0 },
		"disabled":    func(i *client.Instance) { i.Enabled = false },
		"not healthy": func(i *client.Instance) { i.Healthy = false },
		`instance "0.0.0.0": no address that can be called`: func(i *client.Instance) { i.IP = "0.0.0.0" },
		"instance 10.0.0.2 has no port":                     func(i *client.Instance) { i.Port = 0 },
	} {
		b := newBook(t)
		b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
		all := has("10.0.0.1", "10.0.0.2")
		change(&all[1])
		b.takeInstances(orders, all, nil, nil)
		var want []sources.LeftOut
		if why != "" {
			want = []sources.LeftOut{{What: net.JoinHostPort(all[1].IP, strconv.Itoa(all[1].Port)), Of: "orders", Why: why}}
		}
		require.Equal(t, want, b.Contents(at(time.Hour))[0].LeftOut)
	}
	b := newBook(t)
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, has("10.0.0.1"), nil, nil)
	b.believed(at(time.Second))
	b.Return(at(time.Hour), time.Minute)
	ill := has("10.0.0.1")
	ill[0].Healthy = false
	b.takeInstances(orders, ill, []string{"it cannot be read"}, nil)
	require.Equal(t, []sources.LeftOut{{What: "an instance", Of: "orders", Why: "it cannot be read"}},
		b.Contents(at(time.Hour))[0].LeftOut,
		"in doubt it is served")
}

// TestNothingIsServedWithoutAWord is the table of what is said when nothing is served.
func TestNothingIsServedWithoutAWord(t *testing.T) {
	dubbo := has("10.0.0.1")
	dubbo[0].Metadata = map[string]string{"dubbo.metadata.revision": "x"}
	for want, c := range map[string]struct {
		instances []client.Instance
		dubbo     int
		others    int
		names     []string
	}{
		"":                             {has("10.0.0.1"), 3, 4, []string{"orders"}},
		"there is no service in place": {nil, 0, 0, nil},
		"nothing is served: the services in place are 1 without an instance": {
			nil,
			0, 0,
			[]string{"orders"},
		},
		"nothing is served: the services in place are 3 of Dubbo, which an address without kind=services is for": {
			dubbo,
			2, 0,
			[]string{"orders"},
		},
		"nothing is served: the services in place are 2 of Dubbo, which an address without kind=services is for, 5 that the settings do not " +
			"select": {nil, 2, 5, nil},
	} {
		b := newBook(t)
		b.takeNames("DEFAULT_GROUP", c.names, nil)
		b.groups["DEFAULT_GROUP"].dubbo, b.groups["DEFAULT_GROUP"].skipped = c.dubbo, c.others
		b.takeInstances(orders, c.instances, nil, nil)
		if c.names != nil {
			b.believed(at(time.Hour))
		}
		require.Equal(t, want, b.nothing("place"))
	}
}

// TestWhatIsExplained has an instance go while Nacos is well, while it was away shortly before, and when the time has passed for which it
// stays.
func TestWhatIsExplained(t *testing.T) {
	r := newRun(t, "", "DEFAULT_GROUP")
	r.state.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	says := func(at time.Time, ips ...string) bool {
		r.state.takeInstances(orders, has(ips...), nil, nil)
		return r.gather(at).Contents[0].Explained
	}
	require.False(t, says(at(0), "10.0.0.1", "10.0.0.2", "10.0.0.3"))
	r.gather(at(time.Minute))
	require.True(t, says(at(time.Minute), "10.0.0.1", "10.0.0.2"))
	r.state.Return(at(time.Hour), time.Minute)
	require.False(t, says(at(time.Hour), "10.0.0.1"), "in doubt it stays")
	after := r.gather(at(time.Hour + time.Minute))
	require.False(t, after.Contents[0].Explained, "it goes since nobody has heard of it")
	require.True(t, says(at(time.Hour+2*time.Minute)))
}
