package envoy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// private is a VirtualService of a namespace that nobody else is told of.
func private(t *testing.T, namespace, name, text string) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.VirtualService, Namespace: namespace, Name: name}}, &networking.VirtualService{
		Hosts: []string{name + "." + namespace + ".internal"}, ExportTo: []string{"."}, Http: []*networking.HTTPRoute{{
			DirectResponse: &networking.HTTPDirectResponse{Status: 200, Body: &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: text}}},
		}},
	})
	require.NoError(t, err)
	return r
}

// Who rejects what only he is told takes no place from others, however many addresses he has.
func TestStrangersLeavePlacesToOthers(t *testing.T) {
	const strangers = 10
	s := serve(t, answering(t, "a", "good."))
	honest := s.critic(nodes[0], disliking)
	s.eventually(func() bool { return honest.hasRoutes("good.") }, "")
	var objects []*resource.Resource
	for i := range strangers {
		namespace := fmt.Sprint("lonely", i)
		s.from = &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i))}
		s.critic(node(namespace, "NONE", ""), func(_, _ string, body []byte) string {
			if bytes.Contains(body, []byte("ODD")) || bytes.Contains(body, []byte(bad)) { // it does not speak for others either
				return "no"
			}
			return ""
		})
		for j := range maxOfComplainer {
			objects = append(objects, private(t, namespace, fmt.Sprint("vs", j), "ODD"))
		}
	}
	s.table.Apply(objects, nil)
	if !assert.Eventually(t, func() bool { return len(s.quarantined()) == strangers*maxOfComplainer }, 10*time.Second, 5*time.Millisecond) {
		t.Fatalf("%v, ended %v, open %v", s.quarantinedKeys(), s.ends(), s.open())
	}
	s.table.Apply([]*resource.Resource{answering(t, "a", bad), answering(t, "b", "b.")}, nil)
	if !assert.Eventually(t, func() bool { return slices.Contains(s.quarantined(), "a") && honest.hasRoutes("good.", "b.") }, 10*time.Second, 5*time.Millisecond) {
		t.Fatalf("%v, ended %v, open %v, honest %v", s.quarantinedKeys(), s.ends(), s.open(), honest.texts(t))
	}
}

// Whatever is brought by whom: an address has no more than its due, places are not exceeded, and nobody loses a place that is in use as long as he has no more than an
// equal share of those of its sort.
func TestPlacesAreShared(t *testing.T) {
	if testing.Short() {
		t.Skip("much work of one goroutine")
	}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
		q := newQuarantine()
		hosts, objects, reaches := 1+random.IntN(150), 1+random.IntN(400), 1+random.IntN(400)
		inUse := func(r reach) bool { return r[0] != '0' }
		has := func(all bool) map[string]int { // of what is in use, by host
			count := make(map[string]int)
			places, _ := q.places(all)
			for _, p := range places {
				if all || slices.ContainsFunc(p.asides, func(a *aside) bool { return inUse(a.why.of) && a.why.host == p.host }) {
					count[p.host]++
				}
			}
			return count
		}
		for step := range 600 {
			name := fmt.Sprint("vs", random.IntN(objects))
			key, host := keyOf(name), fmt.Sprint(random.IntN(1+random.IntN(hosts)))
			if q.trials[key] == nil {
				q.admit(key, nil, answering(t, name, bad), true)
			}
			of := everybody
			if random.IntN(3) > 0 {
				of = reach(fmt.Sprint(random.IntN(reaches)))
			}
			before := has(of == everybody)
			given, err := q.convict(&aside{trial: q.trials[key].Value.(*trial)}, Quarantined{of: of, host: host, Since: time.Unix(int64(step), 0)}, inUse)
			if err != nil {
				require.ErrorIs(t, err, errNoRoom)
			} else {
				require.True(t, q.asides[key][of] != nil || q.asides[key][everybody] != nil)
			}
			for _, one := range given {
				require.NotEqual(t, key, one)
			}
			now := has(of == everybody)
			for h, n := range before {
				require.GreaterOrEqual(t, now[h], min(n, maxPlaces/hosts), "seed %d, step %d: %s", seed, step, h)
			}
			for _, all := range []bool{true, false} {
				places, asides := q.places(all)
				require.LessOrEqual(t, len(places), maxPlaces)
				require.LessOrEqual(t, asides, maxAsides)
			}
			brought := make(map[resource.Key]bool)
			for _, a := range q.each(func(a *aside) bool { return a.why.host == host }) {
				brought[a.key] = true
				require.Same(t, a, q.of[a.why.of][a.key])
			}
			require.LessOrEqual(t, len(brought), maxOfComplainer)
		}
	}
}

// quarantinedKeys are the namespaces and names of what is in quarantine.
func (s *served) quarantinedKeys() (all []string) {
	for _, q := range s.catalog.Quarantined() {
		all = append(all, q.Key.Namespace+"/"+q.Key.Name)
	}
	return all
}
