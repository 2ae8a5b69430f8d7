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

func timeAt(d time.Duration) time.Time { return start.Add(d) }

var orders = key{"DEFAULT_GROUP", "orders"}

// book is a state with one group, and helpers of the tests.
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

// list has Nacos list orders with instances.
func (s *state) list(instances ...client.Instance) {
	s.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	s.takeInstances(orders, instances, nil, nil)
}

// healthyInstances are instances with these addresses.
func healthyInstances(ips ...string) (instances []client.Instance) {
	for _, ip := range ips {
		instances = append(instances, client.Instance{IP: ip, Port: 80, Weight: 1, Healthy: true, Enabled: true})
	}
	return instances
}

// believed returns the addresses of the believed endpoints of orders, or nil if there is no such service.
func (b *book) believed(now time.Time) (addresses []string) {
	b.t.Helper()
	b.Contents(now)
	if services, _ := b.Services(); services > 0 {
		addresses = []string{}
	}
	b.Endpoints(func(_ mapping.ID, k registry.Known) {
		addresses = append(addresses, k.Value.Address)
	})
	return addresses
}

// published returns the resources that an earlier run published for these instances of orders.
func published(t *testing.T, instances ...client.Instance) []*resource.Resource {
	b := newBook(t)
	b.list(instances...)
	return b.Contents(timeAt(0))[0].Resources
}

func TestPartialLists_AfterOutageKeepEndpoints(t *testing.T) {
	b := newBook(t)
	b.list(healthyInstances("10.0.0.1", "10.0.0.2")...)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(timeAt(0)))
	later := 10 * time.Minute
	b.Return(timeAt(later), time.Minute)
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(timeAt(later)), "no service is listed")
	b.list(healthyInstances("10.0.0.3")...)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, b.believed(timeAt(later+time.Second)), "one that is new counts at once")
	b.takeInstances(orders, healthyInstances("10.0.0.1"), nil, nil)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(timeAt(later+2*time.Second)), "and goes at once")
	require.Equal(t, []string{"10.0.0.1"}, b.believed(timeAt(later+time.Minute)), "unlisted endpoints go after the hold")
	b.takeInstances(orders, nil, nil, nil)
	require.Equal(t, []string{}, b.believed(timeAt(later+2*time.Minute)), "the last one leaves the service without endpoints")
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.Equal(t, []string{}, b.believed(timeAt(later+time.Hour)))
	require.Nil(t, b.believed(timeAt(later+time.Hour+2*time.Minute)), "and that is kept for so long only")
	require.Empty(t, b.services)
}

// TestInDoubt is the table of an instance that was known before Nacos was away, and is listed differently.
func TestInDoubt(t *testing.T) {
	listed := healthyInstances("10.0.0.1")[0]
	change := func(f func(*client.Instance)) []client.Instance { c := listed; f(&c); return []client.Instance{c} }
	for name, c := range map[string]struct {
		now   []client.Instance
		stays bool
	}{
		"it is listed":             {[]client.Instance{listed}, true},
		"it is not":                {nil, true},
		"it is unhealthy":          {change(func(i *client.Instance) { i.Healthy = false }), true},
		"it is disabled":           {change(func(i *client.Instance) { i.Enabled = false }), false},
		"it has no weight":         {change(func(i *client.Instance) { i.Weight = 0 }), false},
		"it is in another cluster": {change(func(i *client.Instance) { i.Cluster = "other" }), true},
	} {
		book := newBook(t)
		book.list(listed)
		book.believed(timeAt(0))
		book.Return(timeAt(time.Minute), time.Minute)
		book.takeInstances(orders, c.now, nil, nil)
		require.Equal(t, c.stays, len(book.believed(timeAt(time.Minute))) > 0, name)
	}
}

func TestRestoredEndpoints_StayUntilRead(t *testing.T) {
	book, restored := newBook(t), healthyInstances("10.0.0.1")[0]
	restored.Metadata = map[string]string{"service-port": "8000", "protocol": "http"}
	book.restore("DEFAULT_GROUP@@orders", published(t, restored), Settings{})
	require.Empty(t, book.Contents(timeAt(0)))
	book.takeNames("DEFAULT_GROUP", nil, errors.New("no"))
	require.False(t, book.settled(), "no list was read")
	book.takeNames("DEFAULT_GROUP", nil, nil)
	require.True(t, book.settled())
	_, port, _ := registry.ReadEntry(book.Contents(timeAt(0))[0].Resources[0])
	require.Equal(t, registry.Port{Number: 8000, Protocol: "HTTP"}, port)
	require.Equal(t, []string{"10.0.0.1"}, book.believed(timeAt(0)))
	require.Equal(t, []string{}, book.believed(timeAt(time.Minute)))
}

func TestSettled(t *testing.T) {
	book := newBook(t)
	require.False(t, book.settled())
	book.takeNames("DEFAULT_GROUP", []string{"orders", "carts"}, nil)
	require.False(t, book.settled())
	book.takeInstances(orders, nil, nil, errors.New("no"))
	book.takeInstances(key{"DEFAULT_GROUP", "carts"}, nil, nil, errors.New("no"))
	require.False(t, book.settled(), "no service can be read")
	book.takeInstances(orders, healthyInstances("10.0.0.1"), nil, nil)
	require.True(t, book.settled(), "one that cannot be read holds up no other")
	texts, everyService, first := book.problems()
	require.Len(t, texts, 1)
	require.Error(t, first)
	require.False(t, everyService)
}

func TestDubboInstances_Ignored(t *testing.T) {
	book := newBook(t)
	book.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	instances := healthyInstances("10.0.0.1", "10.0.0.2")
	instances[0].Metadata = map[string]string{"dubbo.metadata.revision": "x"}
	book.takeInstances(orders, instances, nil, nil)
	require.Equal(t, []string{"10.0.0.2"}, book.believed(timeAt(0)))
	s := Settings{Skip: []string{"a*"}}
	require.False(t, s.selects("providers:com.acme.Demo::"))
	require.False(t, s.selects("abc"))
	require.True(t, s.selects("orders"))
}

// TestHold_LastsThroughRepeatedOutage has Nacos away again before the held instances could register.
func TestHold_LastsThroughRepeatedOutage(t *testing.T) {
	book := newBook(t)
	book.list(healthyInstances("10.0.0.1")...)
	require.Equal(t, []string{"10.0.0.1"}, book.believed(timeAt(0)))
	book.Return(timeAt(time.Minute), time.Minute)
	book.takeNames("DEFAULT_GROUP", nil, nil)
	book.Leave(timeAt(90 * time.Second))
	require.Equal(t, []string{"10.0.0.1"}, book.believed(timeAt(time.Hour)))
	book.Return(timeAt(time.Hour), time.Minute)
	require.Equal(t, []string{"10.0.0.1"}, book.believed(timeAt(time.Hour)))
	require.Equal(t, []string{}, book.believed(timeAt(time.Hour+time.Minute)))
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

// TestEmptyCluster_Removed has a cluster that is a host of its own lose its last instance, while others of the service
// have some.
func TestEmptyCluster_Removed(t *testing.T) {
	r := newRun(t, "{cluster}.{service}.{group}", "DEFAULT_GROUP")
	instanceIn := func(cluster, ip string) client.Instance {
		i := healthyInstances(ip)[0]
		i.Cluster = cluster
		return i
	}
	r.state.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	r.state.takeInstances(orders, []client.Instance{instanceIn("c1", "10.0.0.1"), instanceIn("c2", "10.0.0.2")}, nil, nil)
	r.gather(timeAt(0))
	r.gather(timeAt(2 * time.Minute))
	r.state.takeInstances(orders, []client.Instance{instanceIn("c2", "10.0.0.2")}, nil, nil)
	batch := r.gather(timeAt(3 * time.Minute))
	require.Len(t, batch.Contents[0].Resources, 2, "it is kept without endpoints")
	require.LessOrEqual(t, batch.Next, time.Hour)
	batch = r.gather(timeAt(3*time.Minute + time.Hour))
	require.Len(t, batch.Contents[0].Resources, 1, "for keepEmpty")
}

// TestUnreadGroup_DelaysSync keeps a source from being synced, and holds up no other.
func TestUnreadGroup_DelaysSync(t *testing.T) {
	run := newRun(t, "", "A", "B")
	run.state.takeNames("A", []string{"orders"}, nil)
	run.state.takeInstances(key{"A", "orders"}, healthyInstances("10.0.0.1"), nil, nil)
	run.state.takeNames("B", nil, errors.New("no answer in 5s"))
	b := run.gather(timeAt(0))
	require.Len(t, b.Contents, 1)
	require.False(t, b.Synced, "one group is unread")
	run.state.takeNames("B", nil, nil)
	require.True(t, run.gather(timeAt(time.Second)).Synced)
	require.False(t, run.gather(timeAt(2*time.Second)).Synced, "synced is reported once")
}

// TestClusters_NotReadFromLabels disables an instance of an earlier run, or lists it unchanged, in clusters with names
// that are valid labels or not.
func TestClusters_NotReadFromLabels(t *testing.T) {
	for _, cluster := range []string{"", "DEFAULT", "east", "上海"} {
		i := healthyInstances("10.0.0.1")[0]
		i.Cluster = cluster
		r := published(t, i)
		for _, enabled := range []bool{true, false} {
			next := newBook(t)
			next.restore("DEFAULT_GROUP@@orders", r, Settings{})
			next.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
			i.Enabled = enabled
			next.takeInstances(orders, []client.Instance{i}, nil, nil)
			require.Len(t, next.believed(timeAt(time.Second)), map[bool]int{true: 1, false: 0}[enabled], "%s %t", cluster, enabled)
			_, held := next.Services()
			require.Zero(t, held)
		}
	}
}

// TestReplicas_ServeSamePort has two replicas with the same instances. One of them ran earlier.
func TestReplicas_ServeSamePort(t *testing.T) {
	on := func(ports ...int) (instances []client.Instance) {
		for n, port := range ports {
			i := healthyInstances(fmt.Sprintf("10.0.0.%d", n+1))[0]
			i.Port = port
			instances = append(instances, i)
		}
		return instances
	}
	port := func(b *book, now time.Time, listed []client.Instance) uint32 {
		b.list(listed...)
		_, port, ok := registry.ReadEntry(b.Contents(now)[0].Resources[0])
		require.True(t, ok)
		return port.Number
	}
	early, late := newBook(t), newBook(t)
	require.EqualValues(t, 8080, port(early, timeAt(time.Hour), on(8080, 8080, 9090)))
	require.EqualValues(t, 9090, port(early, timeAt(time.Hour), on(8080, 9090, 9090)))
	require.EqualValues(t, 9090, port(late, timeAt(time.Hour), on(8080, 9090, 9090)))
	early.Return(timeAt(2*time.Hour), time.Minute)
	require.EqualValues(t, 9090, port(early, timeAt(2*time.Hour), on(8080)), "while others are in doubt it stays")
}

// TestLeftOut_NamesInstances is the table of the reasons for an instance that is not served.
func TestLeftOut_NamesInstances(t *testing.T) {
	for why, change := range map[string]func(*client.Instance){
		"":            func(*client.Instance) {},
		"weight 0":    func(i *client.Instance) { i.Weight = 0 },
		"disabled":    func(i *client.Instance) { i.Enabled = false },
		"not healthy": func(i *client.Instance) { i.Healthy = false },
		`instance "0.0.0.0": no address that can be called`: func(i *client.Instance) { i.IP = "0.0.0.0" },
		"instance 10.0.0.2 has no port":                     func(i *client.Instance) { i.Port = 0 },
	} {
		book := newBook(t)
		book.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
		instances := healthyInstances("10.0.0.1", "10.0.0.2")
		change(&instances[1])
		book.takeInstances(orders, instances, nil, nil)
		var want []sources.LeftOut
		if why != "" {
			want = []sources.LeftOut{{What: net.JoinHostPort(instances[1].IP, strconv.Itoa(instances[1].Port)), Of: "orders", Why: why}}
		}
		require.Equal(t, want, book.Contents(timeAt(time.Hour))[0].LeftOut)
	}
	book := newBook(t)
	book.list(healthyInstances("10.0.0.1")...)
	book.believed(timeAt(time.Second))
	book.Return(timeAt(time.Hour), time.Minute)
	ill := healthyInstances("10.0.0.1")
	ill[0].Healthy = false
	book.takeInstances(orders, ill, []string{"it cannot be read"}, nil)
	require.Equal(t, []sources.LeftOut{{What: "an instance", Of: "orders", Why: "it cannot be read"}},
		book.Contents(timeAt(time.Hour))[0].LeftOut,
		"in doubt it is served")
}

// TestEmptyRegistry_ExplainedByStatus is the table of the messages without a served service.
func TestEmptyRegistry_ExplainedByStatus(t *testing.T) {
	dubbo := healthyInstances("10.0.0.1")
	dubbo[0].Metadata = map[string]string{"dubbo.metadata.revision": "x"}
	for want, c := range map[string]struct {
		instances []client.Instance
		dubbo     int
		skipped   int
		names     []string
	}{
		"":                             {healthyInstances("10.0.0.1"), 3, 4, []string{"orders"}},
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
		book := newBook(t)
		book.takeNames("DEFAULT_GROUP", c.names, nil)
		book.groups["DEFAULT_GROUP"].dubbo, book.groups["DEFAULT_GROUP"].skipped = c.dubbo, c.skipped
		book.takeInstances(orders, c.instances, nil, nil)
		if c.names != nil {
			book.believed(timeAt(time.Hour))
		}
		require.Equal(t, want, book.emptyText("place"))
	}
}

// TestRemoval_Explained removes an instance while Nacos is healthy, after an outage during the hold, and after the
// hold.
func TestRemoval_Explained(t *testing.T) {
	run := newRun(t, "", "DEFAULT_GROUP")
	run.state.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	says := func(now time.Time, ips ...string) bool {
		run.state.takeInstances(orders, healthyInstances(ips...), nil, nil)
		return run.gather(now).Contents[0].RemovalsObserved
	}
	require.False(t, says(timeAt(0), "10.0.0.1", "10.0.0.2", "10.0.0.3"))
	run.gather(timeAt(time.Minute))
	require.True(t, says(timeAt(time.Minute), "10.0.0.1", "10.0.0.2"))
	run.state.Return(timeAt(time.Hour), time.Minute)
	require.False(t, says(timeAt(time.Hour), "10.0.0.1"), "in doubt it stays")
	after := run.gather(timeAt(time.Hour + time.Minute))
	require.False(t, after.Contents[0].RemovalsObserved, "an endpoint that goes after a hold is unexplained")
	require.True(t, says(timeAt(time.Hour+2*time.Minute)))
}
