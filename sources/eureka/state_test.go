package eureka

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

var orders = mapping.ID{VIP: "orders"}

// book is a state, and what the tests tell it and ask of it.
type book struct {
	*state
	t   *testing.T
	has map[mapping.ID]*resource.Resource // that is published
}

func newBook(t *testing.T) *book {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	return &book{newState(m, Settings{Hold: time.Minute, KeepEmpty: time.Hour}), t, map[mapping.ID]*resource.Resource{}}
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

// believed returns the addresses of what is believed of a service, or nil if there is none.
func (b *book) believed(id mapping.ID) (all []string) {
	b.t.Helper()
	if b.has[id] != nil {
		all = []string{}
	}
	b.Endpoints(func(of mapping.ID, k registry.Known[registry.Endpoint]) {
		if of == id {
			all = append(all, k.Value.Address)
		}
	})
	return all
}

// settle publishes what there is at a time.
func (b *book) settle(at time.Time) {
	for _, c := range b.Contents(at) {
		for id := range b.has {
			if id.Group() == c.Group {
				delete(b.has, id)
			}
		}
		for _, r := range c.Resources {
			b.has[b.mapper.Restore([]*resource.Resource{r})[0].ID] = r
		}
	}
}

// port is that of orders.
func (b *book) port() registry.Port {
	_, port, ok := registry.ReadEntry(b.has[orders])
	require.True(b.t, ok)
	return port
}

// stays is how many endpoints stay that are not listed.
func (b *book) stays() int { _, held := b.Services(); return held }

// take is a reading by a server that knows no more than that when asked for single instances.
func (b *book) take(r reading, at time.Time) {
	b.note(r, at)
	b.answer(at)
}

// answer has the server say that it knows nothing of any instance that it is asked for.
func (b *book) answer(at time.Time) { b.tell(at, answer{answered: true}) }

// tell has the server answer that of any instance that it is asked for.
func (b *book) tell(at time.Time, a answer) {
	got := answers{of: map[wire.Key]*answer{}}
	questions := b.questions(at, 0)
	for _, q := range questions {
		got.of[q.key] = &a
	}
	b.decide(got, questions, "a", at)
	b.settle(at)
}

// confirm is a time at which nothing is new.
func (b *book) confirm(at time.Time) {
	b.read = at
	b.answer(at)
}

func (b *book) takes(at time.Time, r reading, want ...string) {
	b.t.Helper()
	b.take(r, at)
	require.Equal(b.t, want, b.believed(orders))
}

// after is a run that begins with what an earlier one published.
func (b *book) after(published map[mapping.ID]*resource.Resource, doubts map[string]doubt) *book {
	after := newBook(b.t)
	after.recall(note{Doubts: doubts}, at(0))
	for id, r := range published {
		after.restore(id.Group(), []*resource.Resource{r})
	}
	return after
}

// published is what a run publishes of instances.
func published(t *testing.T, all ...wire.Instance) map[mapping.ID]*resource.Resource {
	b := newBook(t)
	b.take(listing(all, anew), at(-time.Hour))
	return b.has
}

func TestAServerThatComesBackEmptyLosesNothing(t *testing.T) {
	b := newBook(t)
	b.takes(at(0), listing(up("10.0.0.1", "10.0.0.2", "10.0.0.3"), anew), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	later := 10 * time.Minute
	b.takes(at(later), listing(nil, anew, outage), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	require.Equal(t, 3, b.stays())
	require.Equal(t, at(later+time.Minute), b.Next())
	b.takes(at(later+time.Second), listing(up("10.0.0.4")), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	b.takes(at(later+2*time.Second), listing(up("10.0.0.1", "10.0.0.4")), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	b.takes(at(later+3*time.Second), listing(up("10.0.0.1")), "10.0.0.1", "10.0.0.2", "10.0.0.3") // what came since then, and went
	b.takes(at(later+4*time.Second), listing(nil, gone("10.0.0.2", later+3*time.Second)), "10.0.0.3")
	b.confirm(at(later + time.Minute - 1))
	require.Equal(t, []string{"10.0.0.3"}, b.believed(orders))
	b.confirm(at(later + time.Minute))
	require.Equal(t, []string{}, b.believed(orders), "what has not come back by then is gone")
	require.Equal(t, registry.Port{Number: 80, Protocol: "HTTP"}, b.port())
	b.confirm(at(later + time.Minute + time.Hour))
	require.Nil(t, b.believed(orders), "a service that nobody serves is kept for so long only")
	require.Zero(t, b.Next())
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

// TestAHoldDoesNotEndWhileNoServerIsThere has them go before those could register anew that are in doubt.
func TestAHoldDoesNotEndWhileNoServerIsThere(t *testing.T) {
	b := newBook(t)
	b.takes(at(0), listing(up("10.0.0.1"), anew), "10.0.0.1")
	b.takes(at(time.Minute), listing(nil, anew, outage), "10.0.0.1")
	b.away = at(time.Minute)
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
	two := up("10.0.0.1", "10.0.0.2")
	for n := range two {
		two[n].Metadata = map[string]string{"service-port": "8000"}
	}
	held := published(t, two...)
	doubts := map[string]doubt{mapping.InstanceOf(two[0].Key): {Since: at(-30 * time.Second)}}
	for name, c := range map[string]struct {
		first              reading
		atOnce, after, end []string
	}{
		"the server goes on":  {listing(nil, outage), []string{"10.0.0.1"}, []string{}, []string{}},
		"it was started anew": {listing(nil, outage, anew), []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.2"}, []string{}},
		"one of them is there": {
			listing(up("10.0.0.1"), outage, anew),
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.1"},
		},
		"one went since the start": {
			listing(nil, outage, anew, gone("10.0.0.2", time.Second)),
			[]string{"10.0.0.1"},
			[]string{},
			[]string{},
		},
		"one went long ago": {
			listing(nil, outage, anew, gone("10.0.0.2", -time.Minute)),
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"10.0.0.2"},
			[]string{},
		},
	} {
		b := newBook(t).after(held, doubts)
		b.take(c.first, at(0))
		require.Equal(t, c.atOnce, b.believed(orders), name)
		require.Equal(t, registry.Port{Number: 8000, Protocol: "HTTP"}, b.port())
		b.confirm(at(30 * time.Second))
		require.Equal(t, c.after, b.believed(orders), name)
		b.confirm(at(time.Minute))
		require.Equal(t, c.end, b.believed(orders), name)
	}
	b := newBook(t)
	b.selects = func(string) bool { return false }
	b.restore("orders", []*resource.Resource{held[orders]})
	b.note(listing(nil, outage, anew), at(0))
	require.Len(t, b.Contents(at(0)), 1)
	require.Nil(t, b.believed(orders), "it is none of those to read now")
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
		b.restore("orders", nil)
		b.note(c.first, at(0))
		if c.until > 0 {
			require.Empty(t, b.Contents(at(0)), name)
			require.Equal(t, at(c.until), b.Next(), name)
			require.Empty(t, b.Contents(at(c.until-1)), name)
		}
		require.Len(t, b.Contents(at(c.until)), 1, name)
	}
}

// TestHoldsEndThoughEverythingRestarts restarts tributary, the server, or both, more often than a hold, as the clock goes or jumps back.
func TestHoldsEndThoughEverythingRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		ours   bool
		silent bool          // the server does not answer about single instances
		jump   time.Duration // of the clock, at our first restart
	}{
		"the server":                    {},
		"the server, silent":            {silent: true},
		"both":                          {ours: true},
		"both, silent":                  {ours: true, silent: true},
		"both, and the clock":           {ours: true, jump: -time.Hour},
		"both, and the clock, by a bit": {ours: true, jump: -5 * time.Second},
	} {
		b := newBook(t)
		b.take(listing(up("10.0.0.1", "10.0.0.2"), anew), at(0))
		clock := time.Second
		begin := func() {
			b.note(listing(up("10.0.0.1"), anew, outage), at(clock))
			b.tell(at(clock), answer{answered: !c.silent})
		}
		begin()
		require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(orders), name)
		for n := range 18 { // eight seconds each: two holds and a bit, as silence is a reason of its own
			clock += 8 * time.Second
			if b.away = at(clock); c.ours {
				text, err := json.Marshal(note{Note: b.NoteOf(registry.Suspicion{Away: b.away}), Doubts: b.doubts("a")})
				require.NoError(t, err)
				if n == 0 {
					clock += c.jump
				}
				var kept note
				require.NoError(t, json.Unmarshal(text, &kept))
				after := newBook(t)
				after.recall(kept, at(clock))
				for id, r := range b.has {
					after.restore(id.Group(), []*resource.Resource{r})
				}
				after.Recall(kept.Missing, at(clock))
				b = after
			}
			begin()
		}
		require.Equal(t, []string{"10.0.0.1"}, b.believed(orders), name)
	}
}

// TestDoubtsAreKept shows that what one run is in doubt of, the next one is.
func TestDoubtsAreKept(t *testing.T) {
	b := newBook(t)
	b.take(listing(up("10.0.0.1", "10.0.0.2"), anew), at(0))
	require.Empty(t, b.doubts("a"))
	b.take(listing(up("10.0.0.1"), anew), at(time.Second))
	two := up("10.0.0.2")[0].Key
	require.Equal(t, map[string]doubt{mapping.InstanceOf(two): {App: two.App, ID: two.ID, Since: at(time.Second)}}, b.doubts("a"))
	b.take(listing(up("10.0.0.1", "10.0.0.2")), at(2*time.Second))
	require.Empty(t, b.doubts("a"))
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
	for _, b := range []*book{b, b.after(b.has, b.doubts("a"))} {
		b.takes(at(40*time.Second), listing(nil, anew, outage, evicted(old, 30*time.Second)), "10.0.0.1")
		b.takes(at(60*time.Second), listing(nil, evicted(old, 50*time.Second)), "10.0.0.1")
		b.takes(at(80*time.Second), listing(nil, evicted(now, 70*time.Second)), []string{}...)
	}
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
	b = both(t)
	b = b.after(b.has, nil)
	carts := mapping.ID{VIP: "carts"}
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
		b := newBook(t).after(published(t, up("10.0.0.1")...), nil)
		b.take(listing([]wire.Instance{c.listed}, outage), at(0))
		require.Equal(t, c.stays, len(b.believed(orders)) == 1, name)
		if c.stays {
			require.Zero(t, b.Next(), "it is not in doubt: it is listed")
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
	require.Equal(t, registry.Port{Number: 9090, Protocol: "HTTP"}, late.port())
	require.Equal(t, late.port(), early.port())
	early.take(listing(on(8080), anew, outage), at(time.Minute))
	require.Equal(t, late.port(), early.port(), "while others are in doubt it stays")
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
	turn := func(d time.Duration, all ...wire.Instance) []sources.Content {
		b.note(listing(all), at(d))
		for _, l := range b.lost { // the server does not know it either
			l.gone = true
		}
		return b.Contents(at(d))
	}
	turn(time.Second, append(up("10.0.0.1"), bad...)...)
	turn(2*time.Second, bad...)
	gone := turn(2*time.Hour, bad...) // and what is empty is kept no longer
	require.Empty(t, gone[0].Resources)
	require.Len(t, gone[0].LeftOut, 1)
	last := turn(3 * time.Hour)
	require.Len(t, last, 1)
	require.Empty(t, last[0].LeftOut)
}

// TestDeadline is the table of what proves that an instance has gone that was listed last a minute ago, and is held for five.
func TestDeadline(t *testing.T) {
	ago := func(minutes int) time.Time { return start.Add(-time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		loss    loss
		whole   bool
		deleted time.Time
		want    bool
	}{
		"the server that listed it has forgotten nothing": {loss{same: true, seen: ago(1), missing: start}, true, time.Time{}, true},
		"the same, but the answer does not have all":      {loss{same: true, seen: ago(1), missing: start}, false, time.Time{}, false},
		"the same, but it says so":                        {loss{same: true, seen: ago(1), missing: start}, false, ago(2), true},
		"another server, or it was started anew":          {loss{seen: ago(1), missing: start}, true, time.Time{}, false},
		"the same, and it went there after it was seen":   {loss{seen: ago(1), missing: start}, true, ago(0), true},
		"it had gone there when it was still listed here": {loss{seen: ago(1), missing: start}, true, ago(2), false},
		"it went there, and the answer does not have all": {loss{seen: ago(1), missing: start}, false, ago(0), true},
		"it could have registered since four minutes":     {loss{seen: ago(9), missing: ago(4)}, true, time.Time{}, false},
		"it could have registered since five minutes":     {loss{seen: ago(9), missing: ago(5)}, true, time.Time{}, true},
		"the same, and no answer has all":                 {loss{same: true, seen: ago(9), missing: ago(5)}, false, time.Time{}, true},
	} {
		s := &state{holdFor: 5 * time.Minute, whole: c.whole, deleted: map[string]deletion{}}
		if !c.deleted.IsZero() {
			s.deleted["i"] = deletion{when: c.deleted}
		}
		require.Equal(t, c.want, !start.Before(s.holdEnd("i", &c.loss)), name)
	}
}
