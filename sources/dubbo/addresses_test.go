package dubbo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/registry"
)

// TestAddresses_FollowChanges changes interfaces in every way, and compares the kept addresses with new ones.
func TestAddresses_FollowChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 14))
	run := newRun(sourceOf(t, zktest.New(), patiently()), nil)
	names := []string{"a", "b", "c"}
	now := time.Unix(1_700_000_000, 0)
	registered := func(name string) (registrations []backend.Registration) {
		for range rng.IntN(4) {
			text := fmt.Sprintf("dubbo://10.0.0.%d:%d/%s?application=app%d&version=%d.0.0", rng.IntN(3), 20880+rng.IntN(2), name, rng.IntN(2),
				rng.IntN(2))
			u, err := provider.ParseURL(text)
			require.NoError(t, err)
			registrations = append(registrations, backend.Registration{URL: u})
		}
		return registrations
	}
	for range 2000 {
		now = now.Add(time.Minute)
		name := names[rng.IntN(len(names))]
		key := backend.Part{Interface: name, Category: backend.Providers, Node: name}
		switch rng.IntN(8) {
		case 0:
			run.Parts(partsOf(names[:rng.IntN(len(names)+1)]...), nil)
		case 1:
			run.Registered(key, nil, backend.ErrAbsent)
		case 2:
			run.Registered(key, nil, errors.New("it cannot be read"))
		case 3:
			run.restore(name, published(t, run, name))
		case 4:
			run.forgetInterfaces()
		case 5:
			run.Take(name, run.offers(name, now))
			run.contents(now)
		default:
			run.Registered(key, registered(name), nil)
		}
		before := run.addresses()
		run.callAddresses = nil
		require.Equal(t, run.addresses(), before)
	}
}

// published returns the resources that an earlier run published for an interface with one provider.
func published(t *testing.T, r *run, name string) []*resource.Resource {
	resources, _, err := r.mapper.Entries([]registry.Service[mapping.ID]{{
		ID: mapping.ID{Service: provider.ID{Interface: name}, Protocol: "dubbo"}, Name: registry.Name{Host: name, Object: name},
		Endpoints: []registry.Endpoint{{Address: "10.0.0.9", Port: 1, Weight: 1}},
	}})
	require.NoError(t, err)
	return resources
}

// TestHasServices_BeforePublication has a provider at interface level that was read and not yet published: the mapping
// would add a service without its group.
func TestHasServices_BeforePublication(t *testing.T) {
	run := newRun(sourceOf(t, zktest.New(), patiently()), nil)
	url, err := provider.ParseURL("dubbo://10.0.0.1:20880/a?application=app&group=g1")
	require.NoError(t, err)
	run.Parts(partsOf("a"), nil)
	run.Registered(backend.Part{Interface: "a", Category: backend.Providers, Node: "a"},
		[]backend.Registration{{URL: url}}, nil)
	server := &instance{application: "app", readResult: readResult{succeeded: true}}
	server.Instance = provider.Instance{Application: "app", Host: "10.0.0.1", Port: 20880}
	require.True(t, run.hasServices(server))
	server.Port = 20881
	require.False(t, run.hasServices(server))
}
