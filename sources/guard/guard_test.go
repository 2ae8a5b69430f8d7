package guard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(i int) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: fmt.Sprintf("s%04d", i)}
}

// entry is a service with a number of endpoints.
func entry(i, endpoints int) *resource.Resource {
	spec := &networking.ServiceEntry{Hosts: []string{"a.example"}}
	for e := range endpoints {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: fmt.Sprintf("10.0.0.%d", e)})
	}
	r, err := resource.New(resource.Meta{Key: key(i)}, spec)
	if err != nil {
		panic(err)
	}
	return r
}

// entries are n services with a number of endpoints each.
func entries(n, endpoints int) (rs []*resource.Resource) {
	for i := range n {
		rs = append(rs, entry(i, endpoints))
	}
	return rs
}

// keys are those from one number up to another.
func keys(from, to int) (ks []resource.Key) {
	for i := from; i < to; i++ {
		ks = append(ks, key(i))
	}
	return ks
}

// rig is a guard of n services with a number of endpoints each, with a clock of its own.
type rig struct {
	*Guard
	table memstore.Table
	clock time.Time
}

func newRig(s Settings, n, endpoints int) *rig {
	b := &rig{clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.Guard = New(&b.table, Options{Settings: s})
	b.now = func() time.Time { return b.clock }
	b.Apply(entries(n, endpoints), nil)
	return b
}

func (b *rig) size() int { return b.table.Snapshot().Len() }

func TestMassLossIsHeldAndReleased(t *testing.T) {
	b := newRig(Settings{}, 100, 2)
	changes, _ := b.Apply(nil, keys(0, 51))
	require.Empty(t, changes)
	require.Equal(t, 100, b.size())
	st := b.Status()
	require.Equal(t, 51, st.Objects)
	require.Equal(t, 102, st.Endpoints)
	require.Equal(t, "51 of 100 objects would go within 1m0s, which is more than 10 and more than 50 %", st.Why)
	require.Equal(t, Held{Kind: resource.ServiceEntry, Namespace: "shop", Name: "s0000", Gone: true, Endpoints: 2}, st.Held[0])
	require.Len(t, st.Held, 50)
	require.Equal(t, 1, st.More)
	require.True(t, b.Holds(key(50)))
	require.False(t, b.Holds(key(51)))

	b.Apply([]*resource.Resource{entry(200, 1)}, nil)
	require.Equal(t, 101, b.size(), "what adds passes")
	b.Apply(nil, keys(51, 52))
	require.Equal(t, 101, b.size(), "further losses join")

	objects, endpoints, ok := b.Release()
	require.True(t, ok)
	require.Equal(t, []int{52, 104}, []int{objects, endpoints})
	require.Equal(t, 49, b.size())
	require.False(t, b.Holds(key(50)))
	require.Nil(t, b.Status())
	_, _, ok = b.Release()
	require.False(t, ok)

	b.Apply(nil, keys(52, 62))
	require.Equal(t, 39, b.size(), "what was released does not count against later losses")
}

func TestWhatIsNoMassLossPasses(t *testing.T) {
	for name, c := range map[string]struct{ size, go_, stay int }{
		"half":                      {100, 50, 50},
		"as many as may always go":  {10, 10, 0},
		"all of a few":              {3, 3, 0},
		"many, but a small share":   {1000, 400, 600},
		"one more than half":        {100, 51, 100},
		"one more than may just go": {11, 11, 11},
	} {
		b := newRig(Settings{}, c.size, 0)
		b.Apply(nil, keys(0, c.go_))
		require.Equal(t, c.stay, b.size(), name)
	}
}

func TestSettings(t *testing.T) {
	b := newRig(Settings{Share: 0.1, Min: 1}, 20, 0)
	b.Apply(nil, keys(0, 2))
	require.Equal(t, 18, b.size())
	b.Apply(nil, keys(2, 3))
	require.Equal(t, 18, b.size())

	b = newRig(Settings{Off: true}, 100, 0)
	b.Apply(nil, keys(0, 100))
	require.Zero(t, b.size())
}

func TestDribbledLossIsOne(t *testing.T) {
	b := newRig(Settings{}, 100, 0)
	for i := range 100 {
		b.Apply(nil, keys(i, i+1))
		b.clock = b.clock.Add(500 * time.Millisecond)
	}
	require.Equal(t, 50, b.size())
	require.Equal(t, 50, b.Status().Objects)
}

func TestSlowLossPasses(t *testing.T) {
	b := newRig(Settings{}, 100, 0)
	for i := range 100 {
		b.Apply(nil, keys(i, i+1))
		b.clock = b.clock.Add(10 * time.Second)
	}
	require.Zero(t, b.size())
	require.Nil(t, b.Status())
}

func TestWhatComesAndGoesIsNoLoss(t *testing.T) {
	b := newRig(Settings{}, 100, 3)
	for range 100 { // 20 % each time
		b.Apply(nil, keys(0, 20))
		b.Apply(entries(20, 3), nil)
	}
	require.Nil(t, b.Status())
	require.Equal(t, 100, b.size())
	require.LessOrEqual(t, len(b.recent.queue), 200, "what is remembered is bounded")
}

func TestFlipBetweenEmptyAndFullNeverEmpties(t *testing.T) {
	b := newRig(Settings{}, 100, 3)
	for range 100 {
		b.Apply(nil, keys(0, 100))
		require.Equal(t, 100, b.size())
		b.clock = b.clock.Add(time.Second)
		b.Apply(entries(100, 3), nil)
		require.Equal(t, 100, b.size())
		require.Nil(t, b.Status(), "everything is back")
		b.clock = b.clock.Add(time.Second)
	}
}

func TestHundredThousandRemovedInOneGo(t *testing.T) {
	const n = 100_000
	b := newRig(Settings{}, n, 0)
	b.Apply(nil, keys(0, n))
	require.Equal(t, n, b.size())
	require.Len(t, b.Status().Held, listed)
	b.Release()
	require.Zero(t, b.size())
}

func TestEndpoints(t *testing.T) {
	b := newRig(Settings{}, 4, 10)
	b.Apply([]*resource.Resource{entry(0, 0), entry(1, 0)}, nil)
	require.Nil(t, b.Status(), "half")
	require.Equal(t, 20, b.endpoints)
	b.Apply([]*resource.Resource{entry(2, 9)}, nil)
	require.Equal(t, "21 of 40 endpoints would go within 1m0s, which is more than 10 and more than 50 %", b.Status().Why)
	require.Equal(t, 10, endpoints(b.table.Snapshot().Get(key(2))))
	require.Zero(t, b.Status().Objects)
	require.Equal(t, 1, b.Status().Endpoints)

	b.Apply([]*resource.Resource{entry(2, 4)}, nil)
	require.Equal(t, 6, b.Status().Endpoints, "the newest that the source says counts")
	b.Apply([]*resource.Resource{entry(2, 10)}, nil)
	require.Nil(t, b.Status(), "they are back")

	b.Apply(nil, keys(2, 4))
	require.Equal(t, 20, b.Status().Endpoints, "endpoints of objects that go count, too")
	b.Release()
	require.Zero(t, b.endpoints)
	require.Equal(t, 2, b.size())
}

func TestEndpointsThatMoveAreNoLoss(t *testing.T) {
	b := newRig(Settings{}, 1, 100)
	spec := &networking.ServiceEntry{Hosts: []string{"a.example"}}
	for e := range 100 {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: fmt.Sprintf("10.1.0.%d", e)})
	}
	r, err := resource.New(resource.Meta{Key: key(0)}, spec)
	require.NoError(t, err)
	b.Apply([]*resource.Resource{r}, nil)
	require.Nil(t, b.Status())
	require.Equal(t, r.Version(), b.table.Snapshot().Get(key(0)).Version())
}

func TestEndpointsOfWhatIsNoMessage(t *testing.T) {
	meta := resource.Meta{Key: key(0)}
	require.Zero(t, endpoints(resource.FromBody(meta, []byte("\xff"))))
	require.Equal(t, 1, endpoints(resource.FromBody(meta, []byte{6<<3 | 2, 0, 6<<3 | 2, 9})))
	require.Zero(t, endpoints(resource.FromBody(resource.Meta{Key: resource.Key{Kind: resource.Gateway}}, []byte{6<<3 | 2, 0})))
}

func TestFirstSeen(t *testing.T) {
	b := newRig(Settings{}, 100, 1)
	first := b.clock
	created := func(i int) time.Time { return b.table.Snapshot().Get(key(i)).Created() }
	require.Equal(t, first, created(0))
	b.clock = b.clock.Add(time.Hour)
	b.Apply([]*resource.Resource{entry(0, 2), entry(200, 1)}, nil)
	require.Equal(t, first, created(0), "another version of the same object")
	require.Equal(t, first.Add(time.Hour), created(200))
	b.Apply(nil, keys(0, 100))
	b.clock = b.clock.Add(time.Hour)
	b.Apply([]*resource.Resource{entry(0, 1)}, nil)
	require.Equal(t, first, created(0), "it was held, and so never gone")
	b.Apply([]*resource.Resource{entry(300, 1).WithCreated(first.Add(-time.Hour))}, nil)
	require.Equal(t, first.Add(-time.Hour), created(300), "the source knows better")
}

func TestClockStepsBack(t *testing.T) {
	b := newRig(Settings{}, 100, 0)
	b.Apply(nil, keys(0, 30))
	b.clock = b.clock.Add(-time.Hour)
	b.Apply(nil, keys(30, 60))
	require.Equal(t, 70, b.size(), "losses stay one loss")
	b.Apply(entries(60, 0), nil)
	require.Nil(t, b.Status())
	require.Equal(t, 100, b.size())
}

func TestRestartKeepsTheHold(t *testing.T) {
	b := newRig(Settings{}, 20, 0)
	b.Apply(nil, keys(0, 10))
	b.Apply(nil, keys(10, 20))
	since := b.Status().Since
	require.Equal(t, 10, b.size())

	again := New(&b.table, Options{})
	again.Resume(since)
	require.NotNil(t, again.Status(), "until the source is read nobody knows")
	again.Apply(entries(0, 0), nil)
	require.NotNil(t, again.Status())
	again.Apply(nil, keys(10, 20))
	again.MarkSynced()
	require.Equal(t, 10, b.size(), "held, though these few would pass by themselves")
	require.Equal(t, since, again.Status().Since)

	again = New(&b.table, Options{})
	again.Resume(since)
	again.MarkSynced()
	require.Nil(t, again.Status(), "all is there")
	require.True(t, b.table.Synced())

	off := New(&b.table, Options{Settings: Settings{Off: true}})
	off.Resume(since)
	require.Nil(t, off.Status())
}

func TestConfigure(t *testing.T) {
	b := newRig(Settings{}, 100, 0)
	b.Apply(nil, keys(0, 60))
	b.Configure(Settings{HoldFor: time.Hour})
	require.Equal(t, b.clock.Add(time.Hour), *b.Status().Until)
	b.Configure(Settings{Off: true})
	require.Equal(t, 40, b.size(), "what is held goes, too")
	b.Apply(nil, keys(60, 100))
	require.Zero(t, b.size())
}

func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var table memstore.Table
		var remembered time.Time
		g := New(&table, Options{
			Settings: Settings{HoldFor: time.Hour}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Remember: func(since time.Time) { remembered = since },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { g.Run(ctx); close(ended) }()
		g.Apply(entries(100, 0), nil)
		synctest.Wait()
		require.Empty(t, log.String())

		g.Apply(nil, keys(0, 60))
		g.Apply(nil, keys(60, 70))
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
		require.Contains(t, log.String(), "60 of 100 objects")
		require.Equal(t, time.Now(), remembered)
		require.Equal(t, time.Now().Add(time.Hour), *g.Status().Until)

		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		require.Equal(t, 100, table.Snapshot().Len())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 30, table.Snapshot().Len(), "holdFor has passed")
		require.Equal(t, 1, strings.Count(log.String(), "the hold has ended"))
		require.Contains(t, log.String(), "holdFor has passed")
		require.Zero(t, remembered)

		g.Apply(nil, keys(70, 100)) // one that begins and ends before Run looks
		g.Apply(entries(100, 0), nil)
		synctest.Wait()
		require.Equal(t, 2, strings.Count(log.String(), "level=ERROR"), log.String())
		require.Equal(t, 2, strings.Count(log.String(), "the hold has ended"), log.String())
		_, _, holds := g.Counts()
		require.Equal(t, 2, holds)
		cancel()
		<-ended
	})
}
