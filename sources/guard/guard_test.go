package guard

import (
	"fmt"
	"testing"
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
	spec := &networking.ServiceEntry{
		Hosts: []string{"a.example"}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
	}
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
func entries(n, endpoints int) (resources []*resource.Resource) {
	for i := range n {
		resources = append(resources, entry(i, endpoints))
	}
	return resources
}

// keys are those from one number up to another.
func keys(from, to int) (ks []resource.Key) {
	for i := from; i < to; i++ {
		ks = append(ks, key(i))
	}
	return ks
}

// rig is a guard with a table and a clock, as the ledger of a source uses it.
type rig struct {
	*Guard
	table memstore.Table
	clock time.Time
}

// newRig makes the guard of n services with a number of endpoints each.
func newRig(s Settings, n, endpoints int) *rig {
	b := &rig{clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.Guard = New(s, b.table.Snapshot())
	b.Apply(entries(n, endpoints), nil)
	return b
}

func (b *rig) moment() Moment { return Moment{b.clock, b.table.Snapshot()} }

func (b *rig) apply(c Change) []memstore.Change {
	changes, _ := b.table.Apply(c.Puts, c.Deletes)
	return changes
}

func (b *rig) Apply(puts []*resource.Resource, deletes []resource.Key) []memstore.Change {
	return b.apply(b.Judge(b.moment(), Commit{Change: Change{puts, deletes}}))
}

func (b *rig) ApplyExplained(puts []*resource.Resource, deletes []resource.Key) {
	b.apply(b.Judge(b.moment(), Commit{Change: Change{puts, deletes}, Explained: true}))
}

func (b *rig) Release(id, client string) (objects, endpoints int, err error) {
	c, objects, endpoints, err := b.Guard.Release(b.moment(), id, client)
	b.apply(c)
	return objects, endpoints, err
}

func (b *rig) Configure(s Settings) { b.apply(b.Guard.Configure(b.moment(), s)) }

func (b *rig) EndDue() { b.apply(b.Guard.EndDue(b.moment())) }

func (b *rig) State() []byte { return b.Guard.State(b.clock) }

func (b *rig) Resume(state []byte, held map[resource.Key]Loss) error {
	c, err := b.Guard.Resume(b.moment(), state, held)
	b.apply(c)
	return err
}

// restart continues with a new guard.
func (b *rig) restart(t require.TestingT) {
	state, held := b.State(), b.held()
	b.Guard = New(b.settings, b.table.Snapshot())
	require.NoError(t, b.Resume(state, held))
}

// held returns the held losses, as they are kept on disk.
func (b *rig) held() map[resource.Key]Loss {
	losses := make(map[resource.Key]Loss)
	for r := range b.table.Snapshot().All() {
		if previous, desired, held := b.Held(r.Key()); held {
			losses[r.Key()] = Loss{previous, desired}
		}
	}
	return losses
}

func (b *rig) size() int { return b.table.Snapshot().Len() }

func TestMassLoss_IsHeldAndReleased(t *testing.T) {
	rig := newRig(Settings{}, 100, 2)
	require.Empty(t, rig.Apply(nil, keys(0, 51)))
	require.Equal(t, 100, rig.size())
	status := rig.Status()
	require.Equal(t, 51, status.Objects)
	require.Equal(t, 102, status.Endpoints)
	require.Equal(t, "51 of 100 objects would go within 1m0s, which is more than 10 and more than 50 %", status.Why)
	require.Equal(t, Held{Ref: resource.Ref(key(0)), Missing: true, Endpoints: 2}, status.Held[0])
	require.Len(t, status.Held, 50)
	require.Equal(t, 1, status.FurtherLosses)
	require.Contains(t, rig.held(), key(50))
	require.NotContains(t, rig.held(), key(51))

	rig.Apply([]*resource.Resource{entry(200, 1)}, nil)
	require.Equal(t, 101, rig.size(), "what adds passes")
	rig.Apply(nil, keys(51, 52))
	require.Equal(t, 101, rig.size(), "further losses join")

	objects, endpoints, err := rig.Release("", "somebody")
	require.NoError(t, err)
	require.Equal(t, []int{52, 104}, []int{objects, endpoints})
	require.Equal(t, 49, rig.size())
	require.Empty(t, rig.held())
	require.Nil(t, rig.Status())
	_, _, err = rig.Release("", "somebody")
	require.ErrorIs(t, err, ErrNothingHeld)

	rig.Apply(nil, keys(52, 62))
	require.Equal(t, 39, rig.size(), "a released loss does not count against later losses")
}

func TestSettings(t *testing.T) {
	rig := newRig(Settings{Share: 0.1, Min: new(1)}, 20, 0)
	rig.Apply(nil, keys(0, 2))
	require.Equal(t, 18, rig.size())
	rig.Apply(nil, keys(2, 3))
	require.Equal(t, 18, rig.size())

	rig.Configure(Settings{HoldFor: time.Hour})
	require.Equal(t, rig.clock.Add(time.Minute), *rig.Status().EndTime, "by these settings it is little")
	rig.Configure(Settings{HoldFor: time.Second})
	require.Equal(t, rig.clock.Add(time.Second), *rig.Status().EndTime)

	rig = newRig(Settings{Off: true}, 100, 0)
	rig.Apply(nil, keys(0, 100))
	require.Zero(t, rig.size())
	require.Nil(t, rig.State())
	require.NoError(t, rig.Resume([]byte(`{"hold":{"id":"x","since":"2026-01-01T00:00:00Z"}}`), nil))
	require.Nil(t, rig.Status())
	require.Error(t, rig.Resume([]byte(`{`), nil))
}

func TestApply_FlappingIsNoLoss(t *testing.T) {
	rig := newRig(Settings{}, 100, 3)
	for range 100 { // 20 % each time
		rig.Apply(nil, keys(0, 20))
		rig.Apply(entries(20, 3), nil)
	}
	require.Nil(t, rig.Status())
	require.Equal(t, 100, rig.size())
	require.LessOrEqual(t, len(rig.recent.queue), 200, "the recorded losses are bounded")
}

func TestFlipBetweenEmptyAndFullNeverEmpties(t *testing.T) {
	rig := newRig(Settings{}, 100, 3)
	for range 100 {
		rig.Apply(nil, keys(0, 100))
		require.Equal(t, 100, rig.size())
		rig.clock = rig.clock.Add(time.Second)
		rig.Apply(entries(100, 3), nil)
		require.Equal(t, 100, rig.size())
		require.Nil(t, rig.Status(), "everything is back")
		rig.clock = rig.clock.Add(time.Second)
	}
	require.Equal(t, 100, rig.Holds())
}

func TestHundredThousandRemovedInOneGo(t *testing.T) {
	const n = 100_000
	rig := newRig(Settings{}, n, 0)
	rig.Apply(nil, keys(0, n))
	require.Equal(t, n, rig.size())
	require.Len(t, rig.Status().Held, 50)
	require.Equal(t, n-50, rig.Status().FurtherLosses)
	_, _, _ = rig.Release("", "somebody")
	require.Zero(t, rig.size())
}

func TestEndpoints(t *testing.T) {
	rig := newRig(Settings{}, 4, 10)
	rig.Apply([]*resource.Resource{entry(0, 0), entry(1, 0)}, nil)
	require.Nil(t, rig.Status(), "half")
	require.Equal(t, 20, rig.counts.endpoints)
	rig.Apply([]*resource.Resource{entry(2, 9)}, nil)
	require.Equal(t, "21 of 40 endpoints would go within 1m0s, which is more than 10 and more than 50 %", rig.Status().Why)
	require.Equal(t, 10, endpoints(rig.table.Snapshot().Get(key(2))))
	require.Zero(t, rig.Status().Objects)
	require.Equal(t, 1, rig.Status().Endpoints)

	rig.Apply([]*resource.Resource{entry(2, 4)}, nil)
	require.Equal(t, 6, rig.Status().Endpoints, "the newest that the source says counts")
	rig.Apply([]*resource.Resource{entry(2, 10)}, nil)
	require.Nil(t, rig.Status(), "they are back")

	rig.Apply(nil, keys(2, 4))
	require.Equal(t, 20, rig.Status().Endpoints, "endpoints of objects that go count, too")
	_, _, _ = rig.Release("", "somebody")
	require.Zero(t, rig.counts.endpoints)
	require.Equal(t, 2, rig.size())
}

func TestEndpoints_InvalidBody(t *testing.T) {
	meta := resource.Meta{Key: key(0)}
	require.Zero(t, endpoints(resource.FromBody(meta, []byte("\xff"))))
	require.Equal(t, 1, endpoints(resource.FromBody(meta, []byte{6<<3 | 2, 0, 6<<3 | 2, 9})))
	require.Zero(t, endpoints(resource.FromBody(resource.Meta{Key: resource.Key{Kind: resource.Gateway}}, []byte{6<<3 | 2, 0})))
}

func TestClockStepsBack(t *testing.T) {
	rig := newRig(Settings{}, 100, 0)
	rig.Apply(nil, keys(0, 30))
	rig.clock = rig.clock.Add(-time.Hour)
	rig.Apply(nil, keys(30, 60))
	require.Equal(t, 70, rig.size(), "losses stay one loss")
	rig.Apply(entries(60, 0), nil)
	require.Nil(t, rig.Status())
	require.Equal(t, 100, rig.size())
}

// TestJudge_Withdrawn: an object that may not be served any longer goes, whether it is held or not, and is no loss.
func TestJudge_Withdrawn(t *testing.T) {
	b := newRig(Settings{}, 100, 0)
	b.Apply(nil, keys(0, 60))
	b.TakeEvents()
	b.apply(b.Judge(b.moment(), Commit{Change: Change{Deletes: keys(60, 61)}, Withdrawn: append(keys(0, 1), keys(70, 71)...)}))
	require.Equal(t, 98, b.size())
	require.Equal(t, 60, b.Status().Objects)
	require.Nil(t, b.table.Snapshot().Get(key(0)))
	require.NotNil(t, b.table.Snapshot().Get(key(60)))
	_, changed := b.TakeEvents()
	require.ElementsMatch(t, append(keys(60, 61), key(0)), changed)
}

// TestHeldEndpoints_CountUnderChurn loses endpoints while others are added: each endpoint that only the hold serves
// counts, in each report.
func TestHeldEndpoints_CountUnderChurn(t *testing.T) {
	shifted := func(from, to int) *resource.Resource {
		spec, err := entry(0, to).Spec()
		require.NoError(t, err)
		se := spec.(*networking.ServiceEntry) //nolint:forcetypeassert // of entry
		se.Endpoints = se.Endpoints[from:]
		r, err := resource.New(resource.Meta{Key: key(0)}, se)
		require.NoError(t, err)
		return r
	}
	for _, c := range []struct{ from, to, dead int }{
		{32, 40, 32}, {32, 52, 32}, {32, 71, 32}, {0, 8, 32}, {1, 8, 33}, {39, 40, 39}, {40, 79, 40},
	} {
		rig := newRig(Settings{}, 1, 40)
		rig.Apply(nil, []resource.Key{key(0)})
		require.NotNil(t, rig.Status(), "the hold")
		rig.Apply([]*resource.Resource{shifted(c.from, c.to)}, nil)
		for range 2 {
			require.Equal(t, c.dead, endpoints(rig.table.Snapshot().Get(key(0)))-(c.to-c.from), "%+v", c)
			require.Equal(t, c.dead, rig.Status().Endpoints, "%+v", c)
			require.Equal(t, c.dead, rig.Status().Held[0].Endpoints, "%+v", c)
			rig.restart(t)
		}
		_, released, err := rig.Release("", "us")
		require.NoError(t, err)
		require.Equal(t, c.dead, released, "%+v", c)
	}
}
