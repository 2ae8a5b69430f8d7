package nacos

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
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
	b := &book{newState(m, []string{"DEFAULT_GROUP"}, client.Address{}.Place), t}
	b.connected(start, time.Minute)
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
func (b *book) believed(at time.Time) []string {
	b.t.Helper()
	require.True(b.t, b.certain(orders, at))
	b.believe(orders, at, time.Hour)
	var all []string
	for _, r := range b.services[orders].records {
		all = []string{}
		for _, e := range r.endpoints {
			all = append(all, e.Of.Address)
		}
	}
	return all
}

func TestAServerThatComesBackWithPartialListsLosesNothing(t *testing.T) {
	b := newBook(t)
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, has("10.0.0.1", "10.0.0.2"), nil, nil)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, b.believed(at(0)))
	later := 10 * time.Minute
	b.connected(at(later), time.Minute)
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
	b.forget(orders)
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
		b.connected(at(time.Minute), time.Minute)
		b.takeInstances(orders, c.now, nil, nil)
		require.Equal(t, c.stays, len(b.believed(at(time.Minute))) > 0, name)
	}
}

func TestWhatAnEarlierRunPublishedStaysUntilItIsKnown(t *testing.T) {
	b := newBook(t)
	b.restore(orders, []mapping.Restored{{
		ID: mapping.ID{Group: "DEFAULT_GROUP", Service: "orders"}, Port: mapping.Port{Number: 8000, Protocol: "HTTP"},
		Endpoints: []mapping.Endpoint{{Address: "10.0.0.1", Port: 80, Cluster: "DEFAULT", Weight: 100}},
	}})
	require.False(t, b.certain(orders, at(0)))
	b.takeNames("DEFAULT_GROUP", nil, errors.New("no"))
	require.False(t, b.settled(), "nothing was read")
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.True(t, b.settled())
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(0)))
	require.Equal(t, mapping.Port{Number: 8000, Protocol: "HTTP"}, b.services[orders].records[mapping.ID{Group: "DEFAULT_GROUP", Service: "orders"}].port)
	require.Equal(t, []string{}, b.believed(at(time.Minute)))
}

// TestWhatCannotBeToldStays has an earlier run with transforms, of which only the groups are known.
func TestWhatCannotBeToldStays(t *testing.T) {
	b := newBook(t)
	b.restore(orders, nil)
	b.takeNames("DEFAULT_GROUP", nil, nil)
	require.False(t, b.certain(orders, at(0)))
	require.True(t, b.certain(orders, at(time.Minute)))
	b.takeNames("DEFAULT_GROUP", []string{"orders"}, nil)
	b.takeInstances(orders, has("10.0.0.1"), nil, nil)
	require.True(t, b.certain(orders, at(0)))
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
	texts, all, first := b.troubles()
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
	b.connected(at(time.Minute), time.Minute)
	b.takeNames("DEFAULT_GROUP", nil, nil)
	b.disconnected(at(90 * time.Second))
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(time.Hour)))
	b.connected(at(time.Hour), time.Minute)
	require.Equal(t, []string{"10.0.0.1"}, b.believed(at(time.Hour)))
	require.Equal(t, []string{}, b.believed(at(time.Hour+time.Minute)))
}
