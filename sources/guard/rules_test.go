package guard

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// policies are the keys of n objects of a kind without endpoints.
func policies(kind resource.Kind, n int) (keys []resource.Key) {
	for i := range n {
		keys = append(keys, resource.Key{Kind: kind, Namespace: "shop", Name: fmt.Sprintf("p%04d", i)})
	}
	return keys
}

// objects are empty objects of keys.
func objects(ks []resource.Key) (resources []*resource.Resource) {
	for _, k := range ks {
		resources = append(resources, resource.FromBody(resource.Meta{Key: k}, nil))
	}
	return resources
}

// addressed is service 0 with endpoints of these addresses.
func addressed(change func(*networking.ServiceEntry), addresses ...string) *resource.Resource {
	spec := &networking.ServiceEntry{
		Hosts: []string{"a.example"}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
	}
	for _, a := range addresses {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: a})
	}
	if change != nil {
		change(spec)
	}
	r, err := resource.New(resource.Meta{Key: key(0)}, spec)
	if err != nil {
		panic(err)
	}
	return r
}

// subnet are n addresses.
func subnet(prefix string, n int) (as []string) {
	for i := range n {
		as = append(as, fmt.Sprintf("%s.%d", prefix, i+1))
	}
	return as
}

// served are the addresses of service 0 in the table.
func (b *rig) served(t *testing.T) (as []string) {
	spec, err := b.table.Snapshot().Get(key(0)).Spec()
	require.NoError(t, err)
	for _, e := range spec.(*networking.ServiceEntry).Endpoints {
		as = append(as, e.Address)
	}
	return as
}

// passes and holds check that no loss is held, or that one is.
func (b *rig) passes(t *testing.T, size int) {
	t.Helper()
	require.Nil(t, b.Status())
	require.Equal(t, size, b.size())
}

func (b *rig) holds(t *testing.T, size int, why string) {
	t.Helper()
	require.NotNil(t, b.Status(), "nothing is held")
	require.Equal(t, why, b.Status().Why)
	require.Equal(t, size, b.size())
}

// wait advances the clock, and ends a hold that is due.
func (b *rig) wait(d time.Duration) {
	b.clock = b.clock.Add(d)
	b.EndDue()
}

const ap, vs = resource.AuthorizationPolicy, resource.VirtualService

// rules are the rules of the guard, by the name that they have in docs/proofs.md.
var rules = map[string]func(t *testing.T){
	"most of a kind": func(t *testing.T) {
		b := newRig(Settings{}, 500, 0)
		b.Apply(objects(policies(ap, 400)), nil)
		b.Apply(nil, policies(ap, 399))
		b.holds(t, 900, "399 of 400 objects of kind AuthorizationPolicy would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"most of all objects": func(t *testing.T) {
		b := newRig(Settings{}, 10, 0)
		b.Apply(objects(slices.Concat(policies(ap, 10), policies(vs, 10))), nil)
		b.Apply(nil, slices.Concat(policies(ap, 9), policies(vs, 9)))
		b.holds(t, 30, "18 of 30 objects would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"most endpoints": func(t *testing.T) {
		b := newRig(Settings{}, 4, 10)
		b.Apply([]*resource.Resource{entry(0, 3), entry(1, 3), entry(2, 3)}, nil)
		b.holds(t, 4, "21 of 40 endpoints would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"all of a kind": func(t *testing.T) {
		b := newRig(Settings{Share: 1, Min: new(1000)}, 6, 1)
		b.Apply(nil, keys(0, 6))
		b.holds(t, 6, "all 6 objects of kind ServiceEntry would go within 1m0s")
		b = newRig(Settings{}, 500, 0)
		b.Apply(objects(policies(ap, 2)), nil)
		b.Apply(nil, policies(ap, 2))
		b.holds(t, 502, "all 2 objects of kind AuthorizationPolicy would go within 1m0s")
		b = newRig(Settings{}, 6, 0)
		for i := range 6 {
			b.Apply(nil, keys(i, i+1))
		}
		b.holds(t, 1, "all 6 objects of kind ServiceEntry would go within 1m0s")
	},
	"all of everything": func(t *testing.T) {
		b := newRig(Settings{}, 1, 1)
		b.Apply(objects(slices.Concat(policies(ap, 1), policies(vs, 1))), nil)
		b.Apply(nil, policies(ap, 1))
		b.Apply(nil, policies(vs, 1))
		require.Equal(t, 1, b.size())
		b.Apply(nil, keys(0, 1))
		b.holds(t, 1, "all 3 objects would go within 1m0s")
		b = newRig(Settings{}, 1, 1)
		b.Apply(objects(policies(ap, 1)), nil)
		b.Apply(nil, slices.Concat(policies(ap, 1), keys(0, 1)))
		b.holds(t, 2, "all 2 objects would go within 1m0s")
	},
	"the only one of its kind": func(t *testing.T) {
		b := newRig(Settings{}, 20, 0)
		b.Apply(objects(policies(ap, 1)), nil)
		b.Apply(nil, policies(ap, 1))
		b.passes(t, 20)
		b = newRig(Settings{}, 1, 3)
		b.Apply(nil, keys(0, 1))
		b.passes(t, 0)
		b.Apply(entries(1, 3), nil)
		b.Apply([]*resource.Resource{entry(1, 3)}, keys(0, 1))
		b.Apply(nil, keys(1, 2))
		b.passes(t, 0) // there were never two
	},
	"one of a few": func(t *testing.T) {
		b := newRig(Settings{}, 6, 1)
		b.Apply(nil, keys(0, 1))
		b.passes(t, 5)
		b.Apply(nil, keys(1, 3))
		b.passes(t, 3)
	},
	"as much as may go": func(t *testing.T) {
		b := newRig(Settings{}, 100, 0)
		b.Apply(nil, keys(0, 50))
		b.passes(t, 50)
		b = newRig(Settings{}, 11, 0)
		b.Apply(nil, keys(0, 10))
		b.passes(t, 1)
	},
	"min: 0": func(t *testing.T) {
		b := newRig(Settings{Min: new(0)}, 4, 0)
		b.Apply(nil, keys(0, 2))
		b.passes(t, 2)
		b.Apply(nil, keys(2, 3))
		b.holds(t, 2, "3 of 4 objects would go within 1m0s, which is more than 0 and more than 50 %")
	},
	"one by one": func(t *testing.T) {
		b := newRig(Settings{}, 100, 0)
		for i := range 60 {
			b.Apply(nil, keys(i, i+1))
			b.wait(900 * time.Millisecond)
		}
		b.holds(t, 50, "51 of 100 objects would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"slowly": func(t *testing.T) {
		b := newRig(Settings{}, 100, 0)
		for i := range 100 {
			b.Apply(nil, keys(i, i+1))
			b.wait(10 * time.Second)
			if i < 99 {
				b.passes(t, 99-i)
			}
		}
		b.holds(t, 1, "all 7 objects of kind ServiceEntry would go within 1m0s")
		b = newRig(Settings{}, 2, 0)
		b.Apply(nil, keys(0, 1))
		b.wait(61 * time.Second)
		b.Apply(nil, keys(1, 2))
		b.passes(t, 0)
	},
	"there and back": func(t *testing.T) {
		b := newRig(Settings{}, 100, 3)
		for range 10 {
			b.Apply(nil, keys(0, 20))
			b.Apply(entries(20, 3), nil)
		}
		b.passes(t, 100)
	},
	"others in their place": func(t *testing.T) {
		b := newRig(Settings{}, 0, 0)
		b.Apply([]*resource.Resource{addressed(nil, subnet("10.0.0", 40)...)}, nil)
		b.Apply([]*resource.Resource{addressed(nil, subnet("10.1.0", 40)...)}, nil)
		b.passes(t, 1)
		require.Equal(t, subnet("10.1.0", 40), b.served(t))
		b.Apply([]*resource.Resource{entry(1, 0)}, nil)
		b.Apply([]*resource.Resource{addressed(nil), entry(1, 40)}, nil)
		// others of another service are no substitute
		b.holds(t, 2, "40 of 40 endpoints would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"renamed": func(t *testing.T) {
		b := newRig(Settings{}, 2, 1)
		b.Apply([]*resource.Resource{entry(10, 1), entry(11, 1)}, keys(0, 2))
		b.passes(t, 2)
		b = newRig(Settings{}, 7, 3)
		b.Apply([]*resource.Resource{entry(10, 3), entry(11, 3), entry(12, 3), entry(13, 3), entry(14, 3), entry(15, 3), entry(16, 3)},
			keys(0, 7))
		b.passes(t, 7)
		b.wait(2 * time.Minute)
		b.Apply([]*resource.Resource{entry(20, 1), entry(21, 1), entry(22, 1), entry(23, 1), entry(24, 1), entry(25, 1), entry(26, 1)},
			keys(10, 17))
		b.holds(t, 14, "14 of 21 endpoints would go within 1m0s, which is more than 10 and more than 50 %")
		b = newRig(Settings{}, 20, 0)
		var renamed []*resource.Resource
		for i := range 20 {
			renamed = append(renamed, entry(100+i, 0))
		}
		b.Apply(renamed, keys(0, 20))
		b.holds(t, 40, "20 of 20 objects would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"further losses": func(t *testing.T) {
		b := newRig(Settings{}, 100, 0)
		b.Apply(objects(policies(ap, 5)), nil)
		b.Apply(nil, keys(0, 60))
		b.Apply(nil, policies(ap, 1))
		require.Equal(t, 61, b.Status().Objects)
		require.Equal(t, 105, b.size())
	},
	"what is new": func(t *testing.T) {
		b := newRig(Settings{}, 100, 1)
		b.Apply([]*resource.Resource{entry(200, 1), entry(99, 5)}, keys(0, 60))
		require.Equal(t, 101, b.size())
		require.Equal(t, 5, endpoints(b.table.Snapshot().Get(key(99))))
	},
	"new endpoints beside old ones": func(t *testing.T) {
		b := newRig(Settings{}, 0, 0)
		b.Apply([]*resource.Resource{addressed(nil, subnet("10.0.0", 40)...)}, nil)
		b.Apply([]*resource.Resource{addressed(nil)}, nil)
		require.Equal(t, subnet("10.0.0", 40), b.served(t))
		b.Apply([]*resource.Resource{addressed(nil, append(subnet("10.1.0", 38), "10.0.0.7")...)}, nil)
		require.NotNil(t, b.Status())
		require.Equal(t, 39, b.Status().Endpoints)
		require.Equal(t, append(subnet("10.1.0", 38), "10.0.0.7"), b.served(t)[:39], "new endpoints first")
		require.Len(t, b.served(t), 78)
		require.ElementsMatch(t, append(subnet("10.1.0", 38), subnet("10.0.0", 40)...), b.served(t))
		b.wait(time.Minute)
		b.passes(t, 1)
		require.Len(t, b.served(t), 39)
		require.Equal(t, 39, b.counts.endpoints)
	},
	"endpoints that cannot stand beside it": func(t *testing.T) {
		b := newRig(Settings{}, 0, 0)
		b.Apply([]*resource.Resource{addressed(nil, subnet("10.0.0", 40)...)}, nil)
		dns := func(se *networking.ServiceEntry) { se.Resolution = networking.ServiceEntry_DNS }
		b.Apply([]*resource.Resource{addressed(dns, "b.example")}, nil)
		require.Equal(t, subnet("10.0.0", 40), b.served(t))
		require.Equal(t, 40, b.Status().Endpoints)
		selecting := func(se *networking.ServiceEntry) {
			se.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "a"}}
		}
		b.Apply([]*resource.Resource{addressed(selecting)}, nil)
		require.Equal(t, subnet("10.0.0", 40), b.served(t))
		require.Equal(t, 40, b.Status().Endpoints)
	},
	"everything is back": func(t *testing.T) {
		b := newRig(Settings{}, 100, 1)
		b.Apply(nil, keys(0, 60))
		b.Apply(entries(60, 1), nil)
		b.passes(t, 100)
	},
	"few endpoints are left": func(t *testing.T) {
		b := newRig(Settings{}, 100, 1)
		b.Apply(nil, keys(0, 100))
		b.wait(time.Hour)
		require.NotNil(t, b.Status())
		b.Apply(entries(99, 1), nil)
		require.Equal(t, b.clock.Add(time.Minute), *b.Status().EndTime)
		b.wait(30 * time.Second)
		b.Apply(nil, keys(0, 1))
		require.Equal(t, 2, b.Status().Objects, "it joins, and goes with the rest")
		b.wait(30 * time.Second)
		b.passes(t, 98)
		b.Apply(nil, keys(1, 2))
		b.passes(t, 97)
	},
	"few endpoints are left for a moment": func(t *testing.T) {
		b := newRig(Settings{}, 100, 1)
		b.Apply(nil, keys(0, 100))
		b.Apply(entries(99, 1), nil)
		b.wait(30 * time.Second)
		b.Apply(nil, keys(0, 80))
		b.wait(30 * time.Second)
		require.Equal(t, 81, b.Status().Objects)
		require.Nil(t, b.Status().EndTime)
	},
	"the rest of a loss that began before": func(t *testing.T) {
		b := newRig(Settings{}, 6, 0)
		for i := range 6 {
			b.Apply(nil, keys(i, i+1))
		}
		b.wait(time.Hour)
		require.Equal(t, 1, b.size(), "the last is not let go for being only one")
		b.Apply(entries(5, 0), nil)
		b.wait(time.Minute)
		b.passes(t, 5)
		b = newRig(Settings{}, 100, 0)
		b.Apply(nil, keys(0, 40))
		b.Apply(nil, keys(40, 55)) // a quarter of the rest
		b.wait(time.Hour)
		b.holds(t, 60, "55 of 100 objects would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"released": func(t *testing.T) {
		b := newRig(Settings{}, 100, 2)
		b.Apply(nil, keys(0, 60))
		_, _, err := b.Release("another", "me")
		require.ErrorIs(t, err, ErrOtherHold)
		objects, endpoints, err := b.Release(b.Status().ID, "me")
		require.NoError(t, err)
		require.Equal(t, []int{60, 120}, []int{objects, endpoints})
		b.passes(t, 40)
		b.Apply(nil, keys(60, 70))
		b.passes(t, 30)
	},
	"each hold is another": func(t *testing.T) {
		b := newRig(Settings{}, 100, 0)
		b.Apply(nil, keys(0, 60))
		first := b.Status().ID
		b.Apply(entries(60, 0), nil)
		b.Apply(nil, keys(0, 60))
		require.NotEqual(t, first, b.Status().ID)
		_, _, err := b.Release(first, "me")
		require.ErrorIs(t, err, ErrOtherHold)
		b.holds(t, 100, "60 of 100 objects would go within 1m0s, which is more than 10 and more than 50 %")
	},
	"holdFor": func(t *testing.T) {
		b := newRig(Settings{HoldFor: time.Hour}, 100, 0)
		b.Apply(nil, keys(0, 60))
		b.wait(59 * time.Minute)
		b.Apply(entries(60, 0), nil)
		b.Apply(nil, keys(0, 70))
		b.wait(time.Minute)
		require.Equal(t, 100, b.size(), "this hold has just begun")
		b.wait(59 * time.Minute)
		b.passes(t, 30)
	},
	"guard: off": func(t *testing.T) {
		b := newRig(Settings{}, 100, 0)
		b.Apply(nil, keys(0, 60))
		b.Configure(Settings{Off: true})
		b.passes(t, 40)
		b.Apply(nil, keys(60, 100))
		b.passes(t, 0)
	},
	"a restart while it is held": func(t *testing.T) {
		b := newRig(Settings{}, 20, 0)
		b.Apply(nil, keys(0, 10))
		b.Apply(nil, keys(10, 20))
		before := b.Status()
		b.restart(t)
		require.Equal(t, before, b.Status())
		b.Apply(objects(keys(12, 20)), nil)
		b.holds(t, 10, before.Why)
		require.Equal(t, before.Begun, b.Status().Begun)
		require.Equal(t, before.ID, b.Status().ID)
		require.Equal(t, 2, b.Status().Objects)
		b.restart(t)
		b.Apply(objects(keys(10, 12)), nil)
		b.passes(t, 10)
	},
	"a restart while endpoints are held": func(t *testing.T) {
		few, many := subnet("10.0.1", 5), subnet("10.0.0", 30)
		b := newRig(Settings{}, 0, 0)
		b.Apply([]*resource.Resource{addressed(nil, many...)}, nil)
		b.Apply([]*resource.Resource{addressed(nil, few...)}, nil)
		before, union := b.Status(), slices.Concat(few, many)
		require.Equal(t, union, b.served(t))
		for generation := range 3 {
			b.restart(t)
			require.Equal(t, before, b.Status(), "the union differs from the earlier endpoints")
			require.Equal(t, union, b.served(t))
			few = subnet(fmt.Sprint("10.0.", 2+generation), 5)
			b.Apply([]*resource.Resource{addressed(nil, few...)}, nil)
			union = slices.Concat(few, many)
			require.Equal(t, union, b.served(t), "endpoints in between are not served for ever")
		}
		b.restart(t)
		b.Apply([]*resource.Resource{addressed(nil, many...)}, nil)
		require.Nil(t, b.Status(), "all is as it was before")
		require.Equal(t, many, b.served(t))
	},
	"released before the source is read again": func(t *testing.T) {
		for name, end := range map[string]func(b *rig){
			"released": func(b *rig) { _, _, _ = b.Release(b.Status().ID, "me") },
			"holdFor":  func(b *rig) { b.wait(2 * time.Hour) },
			"off":      func(b *rig) { b.Configure(Settings{Off: true}) },
		} {
			b := newRig(Settings{HoldFor: time.Hour}, 100, 3)
			b.Apply([]*resource.Resource{entry(99, 1)}, keys(0, 60))
			b.restart(t)
			end(b)
			require.Equal(t, 40, b.size(), name)
			b.Apply([]*resource.Resource{entry(99, 1)}, keys(0, 60))
			b.MarkRead()
			b.passes(t, 40)
			require.Equal(t, 1, endpoints(b.table.Snapshot().Get(key(99))))
		}
	},
	"a restart with the guard off": func(t *testing.T) {
		b := newRig(Settings{}, 100, 0)
		b.Apply(nil, keys(0, 60))
		b.settings.Off = true
		b.restart(t)
		b.passes(t, 40)
	},
	"a restart between losses": func(t *testing.T) {
		b := newRig(Settings{}, 100, 2)
		b.Apply([]*resource.Resource{entry(99, 1)}, keys(0, 40))
		b.wait(20 * time.Second)
		b.restart(t)
		require.Equal(t, 40, b.recent.sum.objects)
		require.Equal(t, 81, b.recent.sum.endpoints)
		b.MarkRead()
		b.wait(20 * time.Second)
		b.Apply(nil, keys(40, 60))
		b.holds(t, 60, "60 of 100 objects would go within 1m0s, which is more than 10 and more than 50 %")

		b = newRig(Settings{}, 100, 0)
		b.Apply(nil, keys(0, 40))
		b.restart(t)
		b.wait(2 * time.Minute)
		b.Apply(nil, keys(40, 60))
		b.passes(t, 40)
	},
}

func TestRules(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, rule)
	}
}

// TestRules_AreDocumented holds that docs/proofs.md has each of these tests once.
func TestRules_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/proofs.md")
	require.NoError(t, err)
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)\| TestRules/([^|]*) \|$`).FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, m[1])
	}
	var names []string
	for name := range rules {
		names = append(names, name)
	}
	require.ElementsMatch(t, names, rows)
}
