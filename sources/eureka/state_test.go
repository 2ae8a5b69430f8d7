package eureka

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func timeAt(elapsed time.Duration) time.Time { return start.Add(elapsed) }

var orders = mapping.ID{VIP: "orders"}

// book is a state with the objects that it published.
type book struct {
	*state
	t         *testing.T
	published map[mapping.ID]*resource.Resource
	problems  []string // of the last listing
}

func newBook(t *testing.T) *book {
	mapper, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	source := newSource(Settings{PollSettings: registry.PollSettings{Hold: time.Minute, KeepEmpty: time.Hour}}, steady{}, mapper)
	return &book{state: newState(source), t: t, published: map[mapping.ID]*resource.Resource{}}
}

// up returns instances of orders with these addresses.
func up(addresses ...string) (instances []wire.Instance) {
	for _, address := range addresses {
		instances = append(instances, wire.Instance{
			Key: wire.Key{App: "ORDERS", ID: address}, IP: address, Status: wire.Up, Overridden: wire.Unknown,
			Port: wire.Port{Number: 80, Enabled: true}, VIP: "orders",
		})
	}
	return instances
}

// registered returns instances of a server that was restarted, or of another one.
func registered(when wire.Number, addresses ...string) []wire.Instance {
	instances := up(addresses...)
	for index := range instances {
		instances[index].Registered = when
	}
	return instances
}

// reading is a listing, and the changes that the server reports.
type reading struct {
	answer           *wire.Answer
	switched, outage bool
	changes          []wire.Instance
}

// listing is a reading of the server that answered before.
func listing(instances []wire.Instance, options ...func(*reading)) reading {
	result := reading{answer: &wire.Answer{Instances: instances}}
	for _, option := range options {
		option(&result)
	}
	return result
}

func switched(r *reading) { r.switched = true }
func outage(r *reading)   { r.outage = true }
func partial(r *reading)  { r.answer.Nameless, r.answer.Why = 1, errors.New("no name") }

// removed makes the server report the end of an instance.
func removed(address string, when time.Duration) func(*reading) {
	return ended(up(address)[0], when)
}

func ended(instance wire.Instance, when time.Duration) func(*reading) {
	return func(r *reading) {
		instance.Action, instance.Evicted = wire.Deleted, wire.Number(timeAt(when).UnixMilli())
		r.changes = append(r.changes, instance)
	}
}

// served returns the addresses of the endpoints of a service; nil if there is no such service.
func (b *book) served(id mapping.ID) (addresses []string) {
	b.t.Helper()
	if b.published[id] != nil {
		addresses = []string{}
	}
	b.Endpoints(func(service mapping.ID, endpoint registry.Known) {
		if service == id {
			addresses = append(addresses, endpoint.Value.Address)
		}
	})
	return addresses
}

// settle publishes the changes.
func (b *book) settle(now time.Time) {
	b.publish(b.Apply(catalog{Unchanged: true}, now))
}

func (b *book) publish(batch registry.Batch) {
	for _, content := range batch.Contents {
		for id := range b.published {
			if id.Group() == content.Group {
				delete(b.published, id)
			}
		}
		for _, object := range content.Resources {
			b.published[b.mapper.Restore([]*resource.Resource{object})[0].ID] = object
		}
	}
}

// port returns the port of orders.
func (b *book) port() registry.Port {
	_, port, ok := registry.ReadEntry(b.published[orders])
	require.True(b.t, ok)
	return port
}

// held returns the number of unlisted endpoints that stay.
func (b *book) held() int { _, held := b.Services(); return held }

func (b *book) take(r reading, now time.Time) {
	if r.outage {
		b.Leave(now)
	}
	b.publish(b.apply(r, now))
}

// apply returns the content after a reading.
func (b *book) apply(r reading, now time.Time) registry.Batch {
	taken := b.takeListing(r.answer, r.changes)
	b.problems = taken.Problems
	taken.Doubtful = taken.Doubtful || r.switched
	return b.Apply(*taken, now)
}

func (b *book) takes(now time.Time, r reading, want ...string) {
	b.t.Helper()
	b.take(r, now)
	require.Equal(b.t, want, b.served(orders))
}

// restarted returns a run that begins with the content and note of the book.
func (b *book) restarted(now time.Time) *book {
	b.t.Helper()
	text, err := json.Marshal(b.Note())
	require.NoError(b.t, err)
	var note registry.Note[mapping.ID]
	require.NoError(b.t, json.Unmarshal(text, &note))
	next := newBook(b.t)
	for id, object := range b.published {
		next.Restore(id.Group(), []*resource.Resource{object}, next.selects)
	}
	next.Recall(note.Missing, now)
	next.Suspicion.Away = presence.RestoredTime(note.Away, now)
	if note.Away.IsZero() {
		next.Suspicion.Away = now
	}
	return next
}

// publishing returns a book that published instances.
func publishing(t *testing.T, instances ...wire.Instance) *book {
	earlier := newBook(t)
	earlier.take(listing(instances, switched), timeAt(-time.Hour))
	return earlier
}

func TestEmptyServer_AfterRestartKeepsEndpoints(t *testing.T) {
	b := newBook(t)
	b.takes(timeAt(0), listing(up("10.0.0.1", "10.0.0.2", "10.0.0.3"), switched), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	later := 10 * time.Minute
	b.takes(timeAt(later), listing(nil, outage), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	require.Equal(t, 3, b.held())
	require.Equal(t, timeAt(later+time.Minute), b.Next())
	b.takes(timeAt(later+time.Second), listing(up("10.0.0.4")), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	b.takes(timeAt(later+2*time.Second), listing(up("10.0.0.1", "10.0.0.4")), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	b.takes(timeAt(later+3*time.Second), listing(up("10.0.0.1")), "10.0.0.1", "10.0.0.2", "10.0.0.3") // 10.0.0.4 is new
	changes := []func(*reading){removed("10.0.0.1", later+3*time.Second), removed("10.0.0.2", later+3*time.Second)}
	b.takes(timeAt(later+4*time.Second), listing(nil, changes...), "10.0.0.3")
	b.settle(timeAt(later + time.Minute - 1))
	require.Equal(t, []string{"10.0.0.3"}, b.served(orders))
	b.settle(timeAt(later + time.Minute))
	require.Equal(t, []string{}, b.served(orders), "it did not return during the hold")
	require.Equal(t, registry.Port{Number: 80, Protocol: "HTTP"}, b.port())
	b.settle(timeAt(later + time.Minute + time.Hour))
	require.Nil(t, b.served(orders), "an empty service stays for keepEmpty")
	require.Zero(t, b.Next())
}

// TestInDoubt is the table of an instance that was listed two seconds before.
func TestInDoubt(t *testing.T) {
	change := func(edit func(*wire.Instance)) []wire.Instance {
		instances := up("10.0.0.1")
		edit(&instances[0])
		return instances
	}
	elsewhere := func(edit func(*wire.Instance)) reading { return listing(change(edit), switched) }
	for name, test := range map[string]struct {
		now   reading
		stays bool
	}{
		"it is listed":                       {listing(up("10.0.0.1"), switched), true},
		"it is not":                          {listing(nil, switched), true},
		"it is not, and not all is there":    {listing(nil, switched, partial), true},
		"it is not, by the same server":      {listing(up("10.0.0.2")), false},
		"the same, and not all is there":     {listing(up("10.0.0.2"), partial), true},
		"the same, and both are missing":     {listing(nil), true},
		"most registered again":              {listing(registered(7, "10.0.0.2")), true},
		"it went after it was listed":        {listing(nil, switched, removed("10.0.0.1", time.Second)), false},
		"it had gone before it was listed":   {listing(nil, switched, removed("10.0.0.1", -time.Second)), true},
		"it has gone, and not all is there":  {listing(nil, partial, removed("10.0.0.1", time.Second)), false},
		"another one went":                   {listing(nil, switched, removed("10.0.0.9", time.Second)), true},
		"it is down":                         {elsewhere(func(i *wire.Instance) { i.Status = wire.Down }), false},
		"it is out of service":               {elsewhere(func(i *wire.Instance) { i.Status = wire.OutOfService }), false},
		"it is starting":                     {elsewhere(func(i *wire.Instance) { i.Status = wire.Starting }), false},
		"an operator took it out":            {elsewhere(func(i *wire.Instance) { i.Overridden = wire.OutOfService }), false},
		"another service is there":           {elsewhere(func(i *wire.Instance) { i.VIP = "carts" }), false},
		"another instance with another name": {elsewhere(func(i *wire.Instance) { i.ID, i.VIP = "x", "carts" }), false},
		"it is there by another name":        {elsewhere(func(i *wire.Instance) { i.ID = "x" }), true},
		"it cannot be read":                  {elsewhere(func(i *wire.Instance) { i.Broken = errors.New("no") }), true},
		"it has another port":                {elsewhere(func(i *wire.Instance) { i.Port.Number = 81 }), true},
		"none of its ports is enabled":       {elsewhere(func(i *wire.Instance) { i.Port.Enabled = false }), false},
		"the one that was started last counts": {listing(append(up("10.0.0.1"), change(func(i *wire.Instance) {
			i.ID, i.Dirty, i.Status = "x", 2, wire.Down
		})...)), false},
		"the one that was killed does not": {listing(append(change(func(i *wire.Instance) { i.Status = wire.Down }),
			change(func(i *wire.Instance) { i.ID, i.Dirty = "x", 2 })...)), true},
	} {
		book := newBook(t)
		book.takes(timeAt(0), listing(up("10.0.0.1", "10.0.0.2"), switched), "10.0.0.1", "10.0.0.2")
		book.settle(timeAt(time.Minute))
		book.take(test.now, timeAt(time.Minute+2*time.Second))
		require.Equal(t, test.stays, slices.Contains(book.served(orders), "10.0.0.1"), name)
	}
}

// TestMassLoss shows how many instances may go at once.
func TestMassLoss(t *testing.T) {
	for listed, most := range map[int]int{0: 0, 1: 1, 5: 1, 6: 1, 7: 2, 12: 2, 20: 3, 100: 15, 5000: 750} {
		require.Equal(t, most, maxLoss(listed), listed)
	}
	addresses := make([]string, 20)
	for index := range addresses {
		addresses[index] = fmt.Sprintf("10.0.0.%d", 10+index)
	}
	for missing, held := range map[int]int{3: 0, 4: 4, 20: 20} {
		b := newBook(t)
		b.take(listing(up(addresses...), switched), timeAt(0))
		b.settle(timeAt(time.Minute))
		b.take(listing(up(addresses[missing:]...)), timeAt(2*time.Minute))
		require.Equal(t, held, b.held(), missing)
		b.takes(timeAt(2*time.Minute+time.Second), listing(up(addresses[missing:]...), removed(addresses[0], 2*time.Minute)),
			addresses[map[bool]int{true: 1, false: missing}[held > 0]:]...)
		b.settle(timeAt(3 * time.Minute))
		require.Len(t, b.served(orders), 20-missing)
	}
}

// TestBalancer_SwitchesServer has a balancer turn to another server.
func TestBalancer_SwitchesServer(t *testing.T) {
	addresses := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}
	for name, listed := range map[string][]wire.Instance{
		"it is empty":               nil,
		"it has two":                registered(2, addresses[:2]...),
		"it has as many, of others": registered(2, "10.0.0.1", "10.0.0.2", "10.0.0.6", "10.0.0.7", "10.0.0.8"),
		"it does not have one":      registered(2, addresses[:4]...),
	} {
		book := newBook(t)
		book.take(listing(registered(1, addresses...), switched), timeAt(0))
		book.settle(timeAt(time.Minute))
		book.take(listing(listed), timeAt(time.Hour))
		require.Subset(t, book.served(orders), addresses, name)
	}
}

// TestHold_LastsThroughRepeatedOutage has an outage begin during a hold: no instance can register meanwhile.
func TestHold_LastsThroughRepeatedOutage(t *testing.T) {
	book := newBook(t)
	book.takes(timeAt(0), listing(up("10.0.0.1"), switched), "10.0.0.1")
	book.takes(timeAt(time.Minute), listing(nil, outage), "10.0.0.1")
	book.Leave(timeAt(time.Minute))
	book.takes(timeAt(time.Hour), listing(nil, outage), "10.0.0.1")
	book.settle(timeAt(time.Hour + time.Minute - 1))
	require.Equal(t, []string{"10.0.0.1"}, book.served(orders))
	book.settle(timeAt(time.Hour + time.Minute))
	require.Equal(t, []string{}, book.served(orders))
}

// TestHold_EndsBehindAlternatingServers has each answer come from another server, as behind a proxy.
func TestHold_EndsBehindAlternatingServers(t *testing.T) {
	book := newBook(t)
	book.takes(timeAt(0), listing(up("10.0.0.1", "10.0.0.2"), switched), "10.0.0.1", "10.0.0.2")
	for second := time.Duration(1); second <= 60; second++ {
		book.takes(timeAt(second*time.Second), listing(up("10.0.0.1"), switched), "10.0.0.1", "10.0.0.2")
	}
	book.takes(timeAt(61*time.Second), listing(up("10.0.0.1"), switched), "10.0.0.1")
}

// TestRestart_KeepsPublishedEndpoints has two instances that an earlier run published: the first one was in doubt for
// half a minute.
func TestRestart_KeepsPublishedEndpoints(t *testing.T) {
	instances := up("10.0.0.1", "10.0.0.2")
	for index := range instances {
		instances[index].Metadata = map[string]string{"service-port": "8000"}
	}
	earlier := publishing(t, instances...)
	earlier.take(listing(instances[1:], switched), timeAt(-30*time.Second))
	require.Equal(t, 1, earlier.held())
	for name, test := range map[string]struct {
		first              reading
		atOnce, after, end []string
	}{
		"neither is listed": {listing(nil), []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.2"}, []string{}},
		"one is listed": {
			listing(up("10.0.0.1")),
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.1"},
		},
		"one went since the start": {
			listing(nil, removed("10.0.0.2", time.Second)), []string{"10.0.0.1"}, []string{}, []string{},
		},
	} {
		book := earlier.restarted(timeAt(0))
		book.take(test.first, timeAt(0))
		require.Equal(t, test.atOnce, book.served(orders), name)
		require.Equal(t, registry.Port{Number: 8000, Protocol: "HTTP"}, book.port())
		book.settle(timeAt(30 * time.Second))
		require.Equal(t, test.after, book.served(orders), name)
		book.settle(timeAt(time.Minute))
		require.Equal(t, test.end, book.served(orders), name)
	}
	book := newBook(t)
	book.settings.Skip = []string{"orders"}
	book.Restore("orders", []*resource.Resource{earlier.published[orders]}, book.selects)
	require.Len(t, book.apply(reading{answer: listing(nil).answer, switched: true}, timeAt(0)).Contents, 1)
	require.Nil(t, book.served(orders), "the settings no longer select it")
}

// TestRestoredGroup_WithoutObjectsStays has an earlier run with transforms: only its groups are known.
func TestRestoredGroup_WithoutObjectsStays(t *testing.T) {
	for name, test := range map[string]struct {
		first reading
		delay time.Duration
	}{
		"it is not listed": {listing(nil), time.Minute},
		"it is listed":     {listing(up("10.0.0.1")), 0},
	} {
		book := newBook(t)
		book.Restore("orders", nil, book.selects)
		contents := book.apply(reading{answer: test.first.answer, switched: true}, timeAt(0)).Contents
		if test.delay > 0 {
			require.Empty(t, contents, name)
			require.Equal(t, timeAt(test.delay), book.Next(), name)
			require.Empty(t, book.Contents(timeAt(test.delay-1)), name)
		}
		require.Len(t, append(contents, book.Contents(timeAt(test.delay))...), 1, name)
	}
}

// TestHolds_EndDespiteRestarts restarts tributary, the server, or both, more often than a hold, as the clock
// goes or jumps back.
func TestHolds_EndDespiteRestarts(t *testing.T) {
	for name, test := range map[string]struct {
		ours bool
		jump time.Duration // of the clock, at our first restart
	}{
		"the server":                    {},
		"both":                          {ours: true},
		"both, and the clock":           {ours: true, jump: -time.Hour},
		"both, and the clock, by a bit": {ours: true, jump: -5 * time.Second},
	} {
		book := newBook(t)
		book.take(listing(up("10.0.0.1", "10.0.0.2"), switched), timeAt(0))
		clock := time.Second
		book.takes(timeAt(clock), listing(up("10.0.0.1"), outage), "10.0.0.1", "10.0.0.2")
		for round := range 9 { // of eight seconds each: a hold and a bit
			clock += 8 * time.Second
			book.Leave(timeAt(clock))
			if test.ours {
				if round == 0 {
					clock += test.jump
				}
				book = book.restarted(timeAt(clock))
			}
			book.take(listing(up("10.0.0.1"), outage), timeAt(clock))
		}
		require.Equal(t, []string{"10.0.0.1"}, book.served(orders), name)
	}
}

// TestExpiredLease_OfReplacedInstanceIgnored has the lease of a killed instance expire at a server that does not know
// the instance that was started in its place.
func TestExpiredLease_OfReplacedInstanceIgnored(t *testing.T) {
	b := newBook(t)
	earlier, current := up("10.0.0.1")[0], up("10.0.0.1")[0]
	earlier.ID, earlier.Dirty = "orders:1", 1
	current.ID, current.Dirty = "orders:2", 2
	b.takes(timeAt(0), listing([]wire.Instance{earlier, current}, switched), "10.0.0.1")
	for _, b := range []*book{b, b.restarted(timeAt(0))} {
		b.takes(timeAt(40*time.Second), listing(nil, outage, ended(earlier, 30*time.Second)), "10.0.0.1")
		b.takes(timeAt(60*time.Second), listing(nil, ended(earlier, 50*time.Second)), "10.0.0.1")
		b.takes(timeAt(80*time.Second), listing(nil, ended(current, 70*time.Second)), []string{}...)
	}
}

// TestApplications_AtSharedAddress has two applications at one address, as behind a gateway. A server that was restarted
// lists them one by one, and then a third one.
func TestApplications_AtSharedAddress(t *testing.T) {
	application := func(name string) wire.Instance {
		instance := up("10.0.0.1")[0]
		instance.App, instance.ID, instance.VIP = name, name, name
		return instance
	}
	newSharedBook := func(t *testing.T) *book {
		b := newBook(t)
		b.takes(timeAt(0), listing(append(up("10.0.0.1"), application("carts")), switched), "10.0.0.1")
		return b
	}
	b := newSharedBook(t)
	b.takes(timeAt(time.Minute), listing(nil, outage), "10.0.0.1")
	b.takes(timeAt(time.Minute+time.Second), listing([]wire.Instance{application("carts")}), "10.0.0.1")
	b.takes(timeAt(2*time.Minute), listing([]wire.Instance{application("carts")}), []string{}...)
	b = newSharedBook(t)
	b.takes(timeAt(time.Minute), listing([]wire.Instance{application("carts"), application("users")}, outage), []string{}...)

	// The same after a restart.
	b = newSharedBook(t).restarted(timeAt(0))
	carts := mapping.ID{VIP: "carts"}
	b.takes(timeAt(0), listing([]wire.Instance{application("carts")}), "10.0.0.1")
	b.takes(timeAt(time.Second), listing([]wire.Instance{application("users")}), []string{}...)
	require.Equal(t, []string{}, b.served(carts))
}

// TestMalformedInstance_KeepsRestoredEndpoint has an endpoint of an earlier run, and an instance that cannot be read.
func TestMalformedInstance_KeepsRestoredEndpoint(t *testing.T) {
	change := func(edit func(*wire.Instance)) wire.Instance {
		instance := up("10.0.0.1")[0]
		instance.Broken = errors.New("its port is odd")
		edit(&instance)
		return instance
	}
	for name, test := range map[string]struct {
		listed wire.Instance
		stays  bool
	}{
		"it is at that address":      {change(func(*wire.Instance) {}), true},
		"its address cannot be read": {change(func(i *wire.Instance) { i.IP, i.HostName = "", "host.example" }), true},
		// as without the restart: its last readable version
		"it is at another address":     {change(func(i *wire.Instance) { i.IP = "10.0.0.2" }), true},
		"it is another instance":       {change(func(i *wire.Instance) { i.ID = "other" }), false},
		"it is of another application": {change(func(i *wire.Instance) { i.App = "CARTS" }), false},
		"it is down":                   {change(func(i *wire.Instance) { i.Status = wire.Down }), false},
		"its status cannot be read":    {change(func(i *wire.Instance) { i.Status = wire.Unknown }), true},
	} {
		book := publishing(t, up("10.0.0.1")...).restarted(timeAt(0))
		book.take(listing([]wire.Instance{test.listed}), timeAt(0))
		book.settle(timeAt(time.Minute))
		require.Equal(t, test.stays, len(book.served(orders)) == 1, name)
		if test.stays {
			require.Zero(t, book.Next(), "it is not in doubt: it is listed")
			book.takes(timeAt(time.Hour), listing([]wire.Instance{test.listed}), "10.0.0.1")
			book.takes(timeAt(2*time.Hour), listing(nil), []string{}...)
		}
	}
}

// TestMalformedInstance_KeepsLastVersion has an instance that becomes unreadable.
func TestMalformedInstance_KeepsLastVersion(t *testing.T) {
	book := newBook(t)
	book.takes(timeAt(0), listing(up("10.0.0.1"), switched), "10.0.0.1")
	broken := wire.Instance{Key: up("10.0.0.1")[0].Key, Status: wire.Unknown, Broken: errors.New("no")}
	for range 2 {
		book.takes(timeAt(time.Hour), listing([]wire.Instance{broken}), "10.0.0.1")
		require.Len(t, book.problems, 1)
		require.Zero(t, book.Next(), "it is not in doubt: it is listed")
	}
	broken.Status = wire.Down
	book.takes(timeAt(time.Hour), listing([]wire.Instance{broken}), []string{}...)
	book.takes(timeAt(time.Hour), listing(up("10.0.0.1")), "10.0.0.1")
	require.Empty(t, book.problems)
}

// TestReplicas_ServeSamePort has two replicas with the same instances. One of them ran earlier.
func TestReplicas_ServeSamePort(t *testing.T) {
	on := func(ports ...int) (instances []wire.Instance) {
		for index, port := range ports {
			instance := up(fmt.Sprintf("10.0.0.%d", index+1))[0]
			instance.Port.Number = port
			instances = append(instances, instance)
		}
		return instances
	}
	early, late := newBook(t), newBook(t)
	early.take(listing(on(8080, 8080, 9090), switched), timeAt(0))
	early.take(listing(on(8080, 9090, 9090)), timeAt(time.Second))
	late.take(listing(on(8080, 9090, 9090), switched), timeAt(time.Second))
	require.Equal(t, registry.Port{Number: 9090, Protocol: "HTTP"}, late.port())
	require.Equal(t, late.port(), early.port())
	early.take(listing(on(8080), outage), timeAt(time.Minute))
	require.Equal(t, late.port(), early.port(), "while others are in doubt it stays")
}

func TestMalformedInstance_NamedInProblems(t *testing.T) {
	book := newBook(t)
	instances := up("10.0.0.1", "10.0.0.2", "10.0.0.3")
	instances[0].Broken = errors.New("its port is odd")
	instances[1].Port.Enabled = false
	r := listing(instances)
	r.answer.Nameless, r.answer.Why = 2, errors.New("no name")
	book.takes(timeAt(0), r, "10.0.0.3")
	require.Equal(t, []string{
		"2 instances without a name: no name", `app "ORDERS" instance "10.0.0.1" cannot be read: its port is odd`,
		`app "ORDERS" instance "10.0.0.2": none of its ports is enabled`,
	}, book.problems)
}

func TestSelects(t *testing.T) {
	settings := Settings{Apps: []string{"order*", "CARTS"}, Skip: []string{"orders-test"}}
	for application, want := range map[string]bool{"ORDERS": true, "Carts": true, "ORDERS-TEST": false, "X": false} {
		require.Equal(t, want, settings.selects(application), application)
	}
	require.True(t, Settings{}.selects("X"))
}

// TestHostWithoutServices_ClearsLeftOut has the last left-out instance go after the service of its
// host.
func TestHostWithoutServices_ClearsLeftOut(t *testing.T) {
	b := newBook(t)
	invalid := up("0.0.0.0")
	turn := func(elapsed time.Duration, instances ...wire.Instance) []sources.Content {
		return b.apply(reading{answer: listing(instances).answer, switched: false}, timeAt(elapsed)).Contents
	}
	turn(time.Second, append(up("10.0.0.1"), invalid...)...)
	turn(2*time.Second, invalid...)
	empty := turn(2*time.Hour, invalid...) // after keepEmpty
	require.Empty(t, empty[0].Resources)
	require.Len(t, empty[0].LeftOut, 1)
	last := turn(3 * time.Hour)
	require.Len(t, last, 1)
	require.Empty(t, last[0].LeftOut)
}
