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

// TestHold_EndsBehindAlternatingServers has each answer come from another server, as behind a proxy.
func TestHold_EndsBehindAlternatingServers(t *testing.T) {
	book := newBook(t)
	book.takes(timeAt(0), listing(up("10.0.0.1", "10.0.0.2"), switched), "10.0.0.1", "10.0.0.2")
	for second := time.Duration(1); second <= 60; second++ {
		book.takes(timeAt(second*time.Second), listing(up("10.0.0.1"), switched), "10.0.0.1", "10.0.0.2")
	}
	book.takes(timeAt(61*time.Second), listing(up("10.0.0.1"), switched), "10.0.0.1")
}

// TestRestart_DropsUnselectedService has settings that no longer select a service of an earlier run.
func TestRestart_DropsUnselectedService(t *testing.T) {
	earlier := publishing(t, up("10.0.0.1")...)
	book := newBook(t)
	book.settings.Skip = []string{"orders"}
	book.Restore("orders", []*resource.Resource{earlier.published[orders]}, book.selects)
	require.Len(t, book.apply(reading{answer: listing(nil).answer, switched: true}, timeAt(0)).Contents, 1)
	require.Nil(t, book.served(orders))
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
