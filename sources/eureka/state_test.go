package eureka

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

var orders = port{mapping.ID{VIP: "orders"}, false}

// book is a state, and what the tests tell it and ask of it.
type book struct {
	*state
	t *testing.T
}

func newBook(t *testing.T) *book {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	return &book{newState(m, Settings{Hold: time.Minute, KeepEmpty: time.Hour}), t}
}

// up are instances of orders at these addresses.
func up(ips ...string) (all []wire.Instance) {
	for _, ip := range ips {
		all = append(all, wire.Instance{
			Key: wire.Key{App: "ORDERS", ID: ip}, IP: ip, Status: wire.Up, Overridden: wire.Unknown, Port: wire.Port{Number: 80, Enabled: true},
			VIP: "orders",
		})
	}
	return all
}

// endpoints are those of the instances that up returns.
func endpoints(ips ...string) (all []mapping.Endpoint) {
	for _, i := range up(ips...) {
		all = append(all, mapping.Endpoint{Address: i.IP, Port: 80, Instance: mapping.InstanceOf(i.Key)})
	}
	return all
}

// listing is a reading of everything, whose hash is right.
func listing(all []wire.Instance, change ...func(*reading)) reading {
	a := &wire.Answer{Instances: all}
	counts := map[string]string{}
	for _, i := range all {
		counts[i.Status] += "x"
	}
	for _, status := range []string{wire.Down, wire.OutOfService, wire.Starting, wire.Unknown, wire.Up} {
		if n := len(counts[status]); n > 0 {
			a.Hash += status + "_" + string(rune('0'+n)) + "_"
		}
	}
	r := reading{view: view.All(a, view.View{}), same: true}
	for _, f := range change {
		f(&r)
	}
	return r
}

func anew(r *reading)   { r.same = false }
func outage(r *reading) { r.outage = true }
func partial(r *reading) {
	r.view = view.All(&wire.Answer{Instances: r.view.Instances(), Hash: "UP_9_"}, view.View{})
}

// gone has it say that an instance has gone.
func gone(ip string, when time.Duration) func(*reading) {
	return func(r *reading) {
		i := up(ip)[0]
		i.Evicted = at(when).UnixMilli()
		r.deleted = append(r.deleted, i)
	}
}

// believed returns the addresses of what is believed of a port, or nil if there is none.
func (b *book) believed(p port) []string {
	b.t.Helper()
	of := b.services[p]
	if of == nil {
		return nil
	}
	all := []string{}
	for _, k := range of.Endpoints {
		all = append(all, k.Of.Address)
	}
	return all
}

// take is a reading by a server that knows no more than that when asked for single instances.
func (b *book) take(r reading, at time.Time) {
	b.note(r, at)
	b.settle(at)
}

// confirm is a time at which nothing is new.
func (b *book) confirm(at time.Time) {
	if b.read = at; b.due(at) {
		b.settle(at)
	}
}

func (b *book) takes(at time.Time, r reading, want ...string) {
	b.t.Helper()
	b.take(r, at)
	require.Equal(b.t, want, b.believed(orders))
}

func TestAServerThatComesBackEmptyLosesNothing(t *testing.T) {
	b := newBook(t)
	b.takes(at(0), listing(up("10.0.0.1", "10.0.0.2", "10.0.0.3"), anew), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	later := 10 * time.Minute
	b.takes(at(later), listing(nil, anew, outage), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	require.Equal(t, 3, b.held())
	require.Equal(t, at(later+time.Minute), b.next)
	b.takes(at(later+time.Second), listing(up("10.0.0.4")), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	b.takes(at(later+2*time.Second), listing(up("10.0.0.1", "10.0.0.4")), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	b.takes(at(later+3*time.Second), listing(up("10.0.0.1")), "10.0.0.1", "10.0.0.2", "10.0.0.3") // what came since then, and went
	b.takes(at(later+4*time.Second), listing(nil, gone("10.0.0.2", later+3*time.Second)), "10.0.0.3")
	b.confirm(at(later + time.Minute - 1))
	require.Equal(t, []string{"10.0.0.3"}, b.believed(orders))
	b.confirm(at(later + time.Minute))
	require.Equal(t, []string{}, b.believed(orders), "what has not come back by then is gone")
	require.Equal(t, mapping.Port{Number: 80, Protocol: "HTTP"}, b.services[orders].port)
	b.confirm(at(later + time.Minute + time.Hour))
	require.Nil(t, b.believed(orders), "a service that nobody serves is kept for so long only")
	require.Zero(t, b.next)
}

// TestInDoubt is the table of what counts of an instance that was listed by a server that has forgotten.
func TestInDoubt(t *testing.T) {
	change := func(f func(*wire.Instance)) []wire.Instance { all := up("10.0.0.1"); f(&all[0]); return all }
	for name, c := range map[string]struct {
		now   reading
		stays bool
	}{
		"it is listed":                        {listing(up("10.0.0.1"), anew), true},
		"it is not":                           {listing(nil, anew), true},
		"it is not, and not all is there":     {listing(nil, anew, partial), true},
		"it is not, by who has not forgotten": {listing(nil), false},
		"the same, and not all is there":      {listing(nil, partial), true},
		"it went after it was listed":         {listing(nil, anew, gone("10.0.0.1", time.Second)), false},
		"it had gone before it was listed":    {listing(nil, anew, gone("10.0.0.1", -time.Second)), true},
		"it has gone, and not all is there":   {listing(nil, partial, gone("10.0.0.1", -time.Second)), false},
		"another one went":                    {listing(nil, anew, gone("10.0.0.9", time.Second)), true},
		"it is down":                          {listing(change(func(i *wire.Instance) { i.Status = wire.Down }), anew), false},
		"it is out of service":                {listing(change(func(i *wire.Instance) { i.Status = wire.OutOfService }), anew), false},
		"it is starting":                      {listing(change(func(i *wire.Instance) { i.Status = wire.Starting }), anew), false},
		"somebody took it out":                {listing(change(func(i *wire.Instance) { i.Overridden = wire.OutOfService }), anew), false},
		"something else is there":             {listing(change(func(i *wire.Instance) { i.VIP = "carts" }), anew), false},
		"it is there by another name":         {listing(change(func(i *wire.Instance) { i.ID = "x" }), anew), true},
		"it cannot be read":                   {listing(change(func(i *wire.Instance) { i.Broken = errors.New("no") }), anew), true},
		"it has another port":                 {listing(change(func(i *wire.Instance) { i.Port.Number = 81 }), anew), true},
		"none of its ports is enabled":        {listing(change(func(i *wire.Instance) { i.Port.Enabled = false }), anew), false},
		"the one that was started last counts": {listing(append(up("10.0.0.1"), change(func(i *wire.Instance) {
			i.ID, i.Dirty, i.Status = "x", 2, wire.Down
		})...)), false},
		"the one that was killed does not": {listing(append(change(func(i *wire.Instance) { i.Status = wire.Down }),
			change(func(i *wire.Instance) { i.ID, i.Dirty = "x", 2 })...)), true},
	} {
		b := newBook(t)
		b.takes(at(0), listing(up("10.0.0.1", "10.0.0.2"), anew), "10.0.0.1", "10.0.0.2")
		b.take(c.now, at(2*time.Second))
		require.Equal(t, c.stays, len(b.believed(orders)) > 0 && b.believed(orders)[0] == "10.0.0.1", name)
	}
}

// TestWhatOnlyAnotherServerListsIsInDoubtWithoutIt has an instance be listed by another server than the one that is read, whose silence
// proves nothing.
func TestWhatOnlyAnotherServerListsIsInDoubtWithoutIt(t *testing.T) {
	elsewhere := func(r *reading) { r.elsewhere = up("10.0.0.1") }
	b := newBook(t)
	b.takes(at(0), listing(up("10.0.0.1", "10.0.0.2"), anew), "10.0.0.1", "10.0.0.2")
	b.takes(at(time.Second), listing(up("10.0.0.2"), elsewhere), "10.0.0.1", "10.0.0.2")
	require.Equal(t, 1, b.others)
	require.Zero(t, b.held())
	require.Len(t, b.doubts(), 1, "the next run knows as much")
	b.takes(at(time.Hour), listing(up("10.0.0.2"), elsewhere), "10.0.0.1", "10.0.0.2")
	b.takes(at(time.Hour+time.Second), listing(up("10.0.0.2")), "10.0.0.1", "10.0.0.2")
	require.Equal(t, 1, b.held())
	b.takes(at(time.Hour+2*time.Second), listing(up("10.0.0.2"), gone("10.0.0.1", time.Hour+2*time.Second)), "10.0.0.2")
}

// TestAHoldDoesNotEndWhileNoServerIsThere has them go before those could register anew that are in doubt.
func TestAHoldDoesNotEndWhileNoServerIsThere(t *testing.T) {
	b := newBook(t)
	b.takes(at(0), listing(up("10.0.0.1"), anew), "10.0.0.1")
	b.takes(at(time.Minute), listing(nil, anew, outage), "10.0.0.1")
	b.takes(at(time.Hour), listing(nil, anew, outage), "10.0.0.1")
	b.confirm(at(time.Hour + time.Minute - 1))
	require.Equal(t, []string{"10.0.0.1"}, b.believed(orders))
	b.confirm(at(time.Hour + time.Minute))
	require.Equal(t, []string{}, b.believed(orders))
}

// TestAHoldEndsThoughServersTakeTurns has each answer come from another server, as behind a proxy.
func TestAHoldEndsThoughServersTakeTurns(t *testing.T) {
	b := newBook(t)
	b.takes(at(0), listing(up("10.0.0.1", "10.0.0.2"), anew), "10.0.0.1", "10.0.0.2")
	for s := time.Duration(1); s <= 60; s++ {
		b.takes(at(s*time.Second), listing(up("10.0.0.1"), anew), "10.0.0.1", "10.0.0.2")
	}
	b.takes(at(61*time.Second), listing(up("10.0.0.1"), anew), "10.0.0.1")
}

// TestWhatAnEarlierRunPublished is the table of what becomes of it: of one instance in doubt since half a minute, and one that was listed.
func TestWhatAnEarlierRunPublished(t *testing.T) {
	held := []mapping.Service{{
		ID: orders.ID, Apps: []string{"ORDERS"}, Port: mapping.Port{Number: 8000, Protocol: "HTTP"},
		Endpoints: endpoints("10.0.0.1", "10.0.0.2"),
	}}
	doubts := map[string]time.Time{doubtKey(orders, spot{"10.0.0.1", 80}): at(-30 * time.Second)}
	for name, c := range map[string]struct {
		first              reading
		atOnce, after, end []string
	}{
		"the server goes on":  {listing(nil, outage), []string{"10.0.0.1"}, []string{}, []string{}},
		"it was started anew": {listing(nil, outage, anew), []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.1", "10.0.0.2"}, []string{}},
		"one of them is there": {
			listing(up("10.0.0.1"), outage, anew),
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.1"},
		},
		"one went since the start": {
			listing(nil, outage, anew, gone("10.0.0.2", time.Second)),
			[]string{"10.0.0.1"},
			[]string{"10.0.0.1"},
			[]string{},
		},
		"one went long ago": {
			listing(nil, outage, anew, gone("10.0.0.2", -time.Minute)),
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{},
		},
	} {
		b := newBook(t)
		b.restore(orders.ID, held, doubts)
		b.take(c.first, at(0))
		require.Equal(t, c.atOnce, b.believed(orders), name)
		require.Equal(t, mapping.Port{Number: 8000, Protocol: "HTTP"}, b.services[orders].port)
		b.confirm(at(30 * time.Second))
		require.Equal(t, c.after, b.believed(orders), name)
		b.confirm(at(time.Minute))
		require.Equal(t, c.end, b.believed(orders), name)
	}
	b := newBook(t)
	b.selects = func(string) bool { return false }
	b.restore(orders.ID, held, nil)
	b.take(listing(nil, outage, anew), at(0))
	require.Nil(t, b.believed(orders), "it is none of those to read now")
	require.True(t, b.dirty[orders.ID])
}

// TestWhatCannotBeToldStays has an earlier run with transforms, of which only the groups are known.
func TestWhatCannotBeToldStays(t *testing.T) {
	for name, c := range map[string]struct {
		first reading
		until time.Duration
	}{
		"the server goes on":  {listing(nil, outage), 0},
		"it was started anew": {listing(nil, outage, anew), time.Minute},
		"it is listed":        {listing(up("10.0.0.1"), outage, anew), 0},
	} {
		b := newBook(t)
		b.restore(orders.ID, nil, nil)
		b.take(c.first, at(0))
		if c.until > 0 {
			require.True(t, b.services[orders].opaque, name)
			b.confirm(at(c.until - 1))
			require.True(t, b.services[orders].opaque, name)
			b.confirm(at(c.until))
		}
		require.True(t, b.services[orders] == nil || !b.services[orders].opaque, name)
		require.True(t, b.dirty[orders.ID])
	}
}

// TestDoubtsAreKept shows that what one run is in doubt of, the next one is.
func TestDoubtsAreKept(t *testing.T) {
	b := newBook(t)
	b.take(listing(up("10.0.0.1", "10.0.0.2"), anew), at(0))
	require.Empty(t, b.doubts())
	b.take(listing(up("10.0.0.1"), anew), at(time.Second))
	require.Equal(t, map[string]time.Time{doubtKey(orders, spot{"10.0.0.2", 80}): at(time.Second)}, b.doubts())
	b.take(listing(up("10.0.0.1", "10.0.0.2")), at(2*time.Second))
	require.Empty(t, b.doubts())
}

// TestTheLeaseOfAnotherInstanceAtTheSamePlace has that of one that was killed run out, at a server that does not know of the one that was
// started in its place.
func TestTheLeaseOfAnotherInstanceAtTheSamePlace(t *testing.T) {
	b := newBook(t)
	old, now := up("10.0.0.1")[0], up("10.0.0.1")[0]
	old.ID, old.Dirty = "orders:1", 1
	now.ID, now.Dirty = "orders:2", 2
	b.takes(at(0), listing([]wire.Instance{old, now}, anew), "10.0.0.1")
	evicted := func(i wire.Instance, when time.Duration) func(*reading) {
		return func(r *reading) {
			i.Evicted = at(when).UnixMilli()
			r.deleted = append(r.deleted, i)
		}
	}
	for _, b := range []*book{b, b.restarted()} {
		b.takes(at(40*time.Second), listing(nil, anew, outage, evicted(old, 30*time.Second)), "10.0.0.1")
		b.takes(at(60*time.Second), listing(nil, evicted(old, 50*time.Second)), "10.0.0.1")
		b.takes(at(80*time.Second), listing(nil, evicted(now, 70*time.Second)), []string{}...)
	}
}

// restarted is a book that knows what b would have published.
func (b *book) restarted() *book {
	b.t.Helper()
	b.rename()
	after := newBook(b.t)
	for p, of := range b.services {
		s := mapping.Service{ID: p.ID, Secure: p.secure, Name: b.names[p.ID], Apps: of.apps, Port: of.port}
		for _, k := range of.Endpoints {
			s.Endpoints = append(s.Endpoints, k.Of.Endpoint)
		}
		r, _, err := b.mapper.Entry(s)
		require.NoError(b.t, err)
		after.restore(p.ID, mapping.Restore([]*resource.Resource{r}), b.doubts())
	}
	return after
}

// TestTwoApplicationsAtOnePlace has two that are registered at one address, as behind a gateway, of which a server that was started anew
// hears one after the other, and then a third one.
func TestTwoApplicationsAtOnePlace(t *testing.T) {
	other := func(vip string) wire.Instance {
		i := up("10.0.0.1")[0]
		i.App, i.ID, i.VIP = vip, vip, vip
		return i
	}
	both := func(t *testing.T) *book {
		b := newBook(t)
		b.takes(at(0), listing(append(up("10.0.0.1"), other("carts")), anew), "10.0.0.1")
		return b
	}
	b := both(t)
	b.takes(at(time.Minute), listing([]wire.Instance{other("carts")}, anew, outage), "10.0.0.1")
	b.takes(at(2*time.Minute), listing([]wire.Instance{other("carts")}), []string{}...)
	b = both(t)
	b.takes(at(time.Minute), listing([]wire.Instance{other("carts"), other("users")}, anew, outage), []string{}...)

	// The same after a restart.
	held := func(p port) []mapping.Service {
		return []mapping.Service{{ID: p.ID, Port: mapping.Port{Number: 80, Protocol: "HTTP"}, Endpoints: endpoints("10.0.0.1")}}
	}
	carts := port{mapping.ID{VIP: "carts"}, false}
	b = newBook(t)
	b.restore(orders.ID, held(orders), nil)
	b.restore(carts.ID, held(carts), nil)
	b.takes(at(0), listing([]wire.Instance{other("carts")}, anew, outage), "10.0.0.1")
	b.takes(at(time.Second), listing([]wire.Instance{other("users")}), []string{}...)
	require.Equal(t, []string{}, b.believed(carts))
}

// TestWhatIsNotReadAfterARestartStays is the table of what becomes of an endpoint that an earlier run published while an instance is listed
// that cannot be read, by a server that has forgotten nothing.
func TestWhatIsNotReadAfterARestartStays(t *testing.T) {
	change := func(f func(*wire.Instance)) wire.Instance {
		i := up("10.0.0.1")[0]
		i.Broken = errors.New("its port is odd")
		f(&i)
		return i
	}
	for name, c := range map[string]struct {
		listed wire.Instance
		stays  bool
	}{
		"it is at that address":      {change(func(*wire.Instance) {}), true},
		"its address cannot be read": {change(func(i *wire.Instance) { i.IP, i.HostName = "", "host.example" }), true},
		// as while we were there: what was read of it last
		"it is at another address":     {change(func(i *wire.Instance) { i.IP = "10.0.0.2" }), true},
		"it is another instance":       {change(func(i *wire.Instance) { i.ID = "other" }), false},
		"it is of another application": {change(func(i *wire.Instance) { i.App = "CARTS" }), false},
		"it is down":                   {change(func(i *wire.Instance) { i.Status = wire.Down }), false},
		"its status cannot be read":    {change(func(i *wire.Instance) { i.Status = wire.Unknown }), true},
	} {
		b := newBook(t)
		b.restore(orders.ID, []mapping.Service{{
			ID: orders.ID, Apps: []string{"ORDERS"}, Port: mapping.Port{Number: 80, Protocol: "HTTP"}, Endpoints: endpoints("10.0.0.1"),
		}}, nil)
		b.take(listing([]wire.Instance{c.listed}, outage), at(0))
		require.Equal(t, c.stays, len(b.believed(orders)) == 1, name)
		if c.stays {
			require.Zero(t, b.next, "it is not in doubt: it is listed")
			b.takes(at(time.Hour), listing([]wire.Instance{c.listed}), "10.0.0.1")
			b.takes(at(2*time.Hour), listing(nil), []string{}...)
		}
	}
}

// TestReplicasServeTheSamePort has two of them see the same, one of which was there before.
func TestReplicasServeTheSamePort(t *testing.T) {
	on := func(ports ...int) (all []wire.Instance) {
		for n, port := range ports {
			i := up(fmt.Sprintf("10.0.0.%d", n+1))[0]
			i.Port.Number = port
			all = append(all, i)
		}
		return all
	}
	early, late := newBook(t), newBook(t)
	early.take(listing(on(8080, 8080, 9090), anew), at(0))
	early.take(listing(on(8080, 9090, 9090)), at(time.Second))
	late.take(listing(on(8080, 9090, 9090), anew), at(time.Second))
	require.Equal(t, mapping.Port{Number: 9090, Protocol: "HTTP"}, late.services[orders].port)
	require.Equal(t, late.services[orders].port, early.services[orders].port)
	early.take(listing(on(8080), anew, outage), at(time.Minute))
	require.Equal(t, late.services[orders].port, early.services[orders].port, "while others are in doubt it stays")
}

func TestOneThatCannotBeReadIsNamed(t *testing.T) {
	b := newBook(t)
	all := up("10.0.0.1", "10.0.0.2", "10.0.0.3")
	all[0].Broken = errors.New("its port is odd")
	all[1].Port.Enabled = false
	r := listing(all)
	r.nameless, r.why = 2, errors.New("no name")
	b.takes(at(0), r, "10.0.0.3")
	require.Equal(t, []string{
		"2 instances without a name: no name", `app "ORDERS" instance "10.0.0.1" cannot be read: its port is odd`,
		`app "ORDERS" instance "10.0.0.2": none of its ports is enabled`,
	}, b.out)
}

func TestSelects(t *testing.T) {
	s := Settings{Apps: []string{"order*", "CARTS"}, Skip: []string{"orders-test"}}
	for app, want := range map[string]bool{"ORDERS": true, "Carts": true, "ORDERS-TEST": false, "X": false} {
		require.Equal(t, want, s.selects(app), app)
	}
	require.True(t, Settings{}.selects("X"))
}

// TestAHostWithoutServicesSaysThatNothingIsLeftOutAnyMore has the last of what was left out go after the service of its host has.
func TestAHostWithoutServicesSaysThatNothingIsLeftOutAnyMore(t *testing.T) {
	b := newBook(t)
	bad := up("0.0.0.0")
	turn := func(d time.Duration, all ...wire.Instance) {
		b.note(listing(all), at(d))
		b.settle(at(d))
	}
	turn(time.Second, append(up("10.0.0.1"), bad...)...)
	turn(2*time.Second, bad...)
	turn(2*time.Hour, bad...) // and what is empty is kept no longer
	require.NotContains(t, b.services, orders)
	require.Len(t, b.leaves[orders.ID], 1)
	delete(b.dirty, orders.ID) // it is published
	turn(3 * time.Hour)
	require.Empty(t, b.leaves)
	require.True(t, b.dirty[orders.ID])
}
