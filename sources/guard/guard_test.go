package guard

import (
	"fmt"
	"strings"
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

// service is a service with endpoints of these addresses. An address may end in "/VERSION".
func service(key resource.Key, addresses ...string) *resource.Resource {
	spec := &networking.ServiceEntry{
		Hosts: []string{"a.example"}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
	}
	for _, address := range addresses {
		address, version, isVersioned := strings.Cut(address, "/")
		switch address {
		case "": // no endpoint
		case "dns":
			spec.Resolution = networking.ServiceEntry_DNS
		case "selector":
			spec.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "a"}}
		default:
			endpoint := &networking.WorkloadEntry{Address: address}
			if isVersioned {
				endpoint.Labels = map[string]string{"version": version}
			}
			spec.Endpoints = append(spec.Endpoints, endpoint)
		}
	}
	r, err := resource.New(resource.Meta{Key: key}, spec)
	if err != nil {
		panic(err)
	}
	return r
}

// entry is a service with a number of endpoints.
func entry(i, endpoints int) *resource.Resource {
	var addresses []string
	for e := range endpoints {
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d", e))
	}
	return service(key(i), addresses...)
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
	b.apply(b.Judge(b.moment(), Commit{Change: Change{puts, deletes}, RemovalsObserved: true}))
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

func TestEndpoints_InvalidBody(t *testing.T) {
	meta := resource.Meta{Key: key(0)}
	require.Zero(t, endpoints(resource.FromBody(meta, []byte("\xff"))))
	require.Equal(t, 1, endpoints(resource.FromBody(meta, []byte{6<<3 | 2, 0, 6<<3 | 2, 9})))
	meta.Key.Kind = resource.Gateway
	require.Zero(t, endpoints(resource.FromBody(meta, []byte{6<<3 | 2, 0})))
}

// TestDisabledGuard_HasNoState holds that a guard without an effect neither saves nor resumes a hold.
func TestDisabledGuard_HasNoState(t *testing.T) {
	rig := newRig(Settings{Off: true}, 100, 0)
	rig.Apply(nil, keys(0, 100))
	require.Nil(t, rig.State())
	require.NoError(t, rig.Resume([]byte(`{"hold":{"id":"x","since":"2026-01-01T00:00:00Z"}}`), nil))
	require.Nil(t, rig.Status())
	require.Error(t, rig.Resume([]byte(`{`), nil))
}

// TestApplyExplained_Returns: a loss that did not join the hold, and that comes back as the object that is served, does
// not count any longer.
func TestApplyExplained_Returns(t *testing.T) {
	rig := newRig(Settings{}, 24, 3)
	rig.Apply(nil, keys(0, 15))
	rig.Apply([]*resource.Resource{entry(0, 1)}, nil)
	rig.clock = rig.clock.Add(time.Minute)
	rig.ApplyExplained(nil, keys(0, 1))
	require.Equal(t, 1, rig.hold.notJoined.sum.objects)
	require.Equal(t, 2, endpoints(rig.table.Snapshot().Get(key(0))))
	require.Empty(t, rig.Apply([]*resource.Resource{rig.table.Snapshot().Get(key(0))}, nil))
	require.Equal(t, 0, rig.hold.notJoined.sum.objects)
}
