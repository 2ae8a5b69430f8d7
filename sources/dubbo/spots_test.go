package dubbo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestWhereSomethingIsCalledIsCounted changes what is known of interfaces in every way, and compares the count with one of everything.
func TestWhereSomethingIsCalledIsCounted(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 14))
	s := newRun(sourceOf(t, zktest.New(), patiently()), nil).state
	names := []string{"a", "b", "c"}
	at := time.Unix(1_700_000_000, 0)
	registered := func(name string) (all []registry.Registered) {
		for range rng.IntN(4) {
			text := fmt.Sprintf("dubbo://10.0.0.%d:%d/%s?application=app%d&version=%d.0.0", rng.IntN(3), 20880+rng.IntN(2), name, rng.IntN(2),
				rng.IntN(2))
			u, err := provider.ParseURL(text)
			require.NoError(t, err)
			all = append(all, registry.Registered{URL: u})
		}
		return all
	}
	for range 2000 {
		at = at.Add(time.Minute)
		name := names[rng.IntN(len(names))]
		key := registry.Part{Interface: name, Category: registry.Providers, Node: name}
		switch rng.IntN(8) {
		case 0:
			s.takeParts(partsOf(names[:rng.IntN(len(names)+1)]...))
		case 1:
			s.take(key, nil, registry.ErrAbsent)
		case 2:
			s.take(key, nil, errors.New("it cannot be read"))
		case 3:
			s.restore(name, []mapping.Restored{{
				ID: provider.ID{Interface: name}, Protocol: "dubbo",
				Endpoints: []mapping.Endpoint{{Address: "10.0.0.9", Port: 1}},
			}})
		case 4:
			s.forget(name)
		case 5:
			s.believe(name, at, s.unread.judge, func(bool) time.Duration { return time.Second })
		default:
			s.take(key, registered(name), nil)
		}
		want := spots{}
		for _, i := range s.interfaces {
			for _, p := range i.parts {
				want.add(p.spots())
			}
		}
		for _, services := range s.records {
			for _, r := range services {
				want.add(r.spots())
			}
		}
		require.Equal(t, want, s.called)
	}
}
