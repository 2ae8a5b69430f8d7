package registry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/presence"
)

// svc is a service of the model. The first letter is its group.
type svc string

func (s svc) Compare(o svc) int { return cmp.Compare(s, o) }
func (s svc) Group() string     { return strings.ToLower(string(s[:1])) }

func (s svc) String() string { return string(s) }

// plain is the mapping of the model. Hosts have no case, so that two services want one.
type plain struct{ Hosts[svc] }

func newPlain() plain {
	return plain{NewHosts(MappingOptions{HostTemplate: "{name}.test", Namespace: "model"}, nil, Naming[svc]{Parts: func(s svc) []Part {
		return []Part{{Placeholder: "{name}", Text: string(s), Annotation: "id"}}
	}}, func(s svc) string { return "model " + string(s) })}
}

func (plain) Restore(published []*resource.Resource) []Service[svc] {
	return Restored(published, func(a map[string]string, s Service[svc]) []Service[svc] {
		s.ID = svc(a["id"])
		return []Service[svc]{s}
	}, "id")
}

// world is a registry of sessions in a random history, with the state of its reader and the published instances.
type world struct {
	clock     time.Time
	live      map[int]bool // instances that live; false if they are switched off
	listed    map[int]bool // the instances that the registry still has, of these and of those that died without a message
	up        bool
	machine   *Machine[svc]
	hasRead   bool      // since it started
	lost      time.Time // the time since when the registry lacks instances; zero if all have registered again
	missing   map[int]*connected
	note      notebook
	published map[string]sources.Content
	vague     map[string]bool   // groups whose published content is unknown after a restart
	empty     map[svc]time.Time // the time since when a service has no instance
}

// connected is for how long the registry answered since an instance went missing, at least and at most: a clock that is
// set while it is away leaves that open.
type connected struct{ least, most time.Duration }

// notebook is the sink of the model.
type notebook struct {
	sources.Sink
	text []byte
}

func (n *notebook) LastNote() []byte { return n.text }
func (n *notebook) Keep(note []byte) { n.text = note }

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

const (
	hold = time.Minute
	keep = 5 * time.Minute
)

var services = []svc{"Ax", "ax", "b"} // two of these are published together

func serviceOf(i int) svc { return services[i%len(services)] }

// pass lets time pass. In it, an instance that lives can register if the registry is there.
func (w *world) pass(duration time.Duration) {
	w.clock = w.clock.Add(duration)
	for _, c := range w.missing {
		if w.up {
			c.least, c.most = c.least+duration, c.most+duration
		}
	}
}

// set changes the clock between runs: to the past, so that holds may begin again; to the future, so that they may be
// over.
func (w *world) set(offset time.Duration) {
	w.clock = w.clock.Add(offset)
	for _, connected := range w.missing {
		switch {
		case offset < 0:
			connected.least = 0
		case w.up:
			connected.least, connected.most = connected.least+offset, connected.most+offset
		default:
			connected.most += offset
		}
	}
}

// start makes a run with the published content of the earlier run. unknown means that it cannot be determined.
func (w *world) start(unknown bool) {
	w.hasRead = false
	w.machine = NewMachine(newPlain(), func(svc) time.Duration { return keep }, nil)
	clear(w.vague)
	for name, content := range w.published {
		if unknown {
			content.Resources, w.vague[name] = nil, true
		}
		w.machine.Restore(name, content.Resources, func(Service[svc]) bool { return true })
	}
	if w.machine.Resume(&w.note, w.clock); w.up {
		w.machine.Return(w.clock, hold)
	}
}

// read takes all that is listed, and publishes.
func (w *world) read() {
	w.machine.RemovalsObserved = !w.machine.Suspicion.Holds(w.clock)
	offers := map[string]Offers[svc]{}
	for _, i := range slices.Sorted(maps.Keys(w.listed)) {
		o := Offer[svc]{ID: serviceOf(i), Endpoint: endpointOf(i), State: presence.Listed, Protocol: "TCP"}
		if !w.listed[i] {
			o.State, o.Why = presence.Disabled, "off"
		}
		offer := offers[o.ID.Group()]
		offer.All = append(offer.All, o)
		offers[o.ID.Group()] = offer
	}
	w.machine.TakeAll(offers)
	w.hasRead = true
	for _, c := range w.machine.Contents(w.clock) {
		if w.published[c.Group] = c; len(c.Resources) == 0 {
			delete(w.published, c.Group)
		}
	}
	w.keep()
}

func (w *world) keep() { w.note.text = KeepNote(&w.note, w.machine.Note(), w.note.text) }

// ended checks the ends of holds: no instance stays that was missing for longer, however often the connection was cut
// and we restarted, and none that lives goes earlier.
func (w *world) ended(t require.TestingT, before, now []int) {
	for i := range 9 {
		switch _, listed := w.listed[i]; {
		case listed || !slices.Contains(before, i) || len(w.vague) > 0:
			delete(w.missing, i)
		case w.missing[i] == nil:
			w.missing[i] = &connected{}
		case w.missing[i].least >= hold:
			require.NotContains(t, now, i, "a hold has an end")
		}
	}
}

func endpointOf(i int) Endpoint {
	return Endpoint{Address: fmt.Sprintf("10.0.0.%d", i), Port: 80, Labels: map[string]string{}}
}

// serves returns the instances that are published, in order, and the services.
func (w *world) serves(t require.TestingT) (instances []int, hosts map[svc]string) {
	hosts = map[svc]string{}
	for _, c := range w.published {
		for _, r := range c.Resources {
			spec, err := r.Spec()
			require.NoError(t, err)
			hosts[svc(r.Annotations()["id"])] = spec.(*networking.ServiceEntry).Hosts[0]
			endpoints, _, _ := ReadEntry(r)
			for _, e := range endpoints {
				i, err := strconv.Atoi(strings.TrimPrefix(e.Address, "10.0.0."))
				require.NoError(t, err)
				instances = append(instances, i)
			}
		}
	}
	slices.Sort(instances)
	return instances, hosts
}

// TestMachine: instances come, go, die and are switched off, and their registry is away or forgets them. A published
// instance that runs and takes calls is never missing, a switched-off instance is never published, and after the hold
// the published instances are the listed ones. No two services have one host, and a service without instances stays for
// keep.
func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			clock: start, live: map[int]bool{}, listed: map[int]bool{}, up: true, published: map[string]sources.Content{},
			vague: map[string]bool{}, empty: map[svc]time.Time{}, missing: map[int]*connected{},
		}
		w.start(false)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.pass(time.Second)
			i := rapid.IntRange(0, 8).Draw(t, "instance")
			before, _ := w.serves(t)
			switch step := rapid.SampledFrom([]string{
				"come", "come", "go", "off", "away", "forget", "back", "wait", "cut", "restart", "restart unknown", "set clock",
			}).Draw(t, "what"); step {
			case "come", "off":
				if w.live[i] = step == "come"; w.up {
					w.listed[i] = w.live[i]
				} else {
					w.lost = w.clock // it registers when the registry is back
				}
			case "go":
				if delete(w.live, i); w.up {
					delete(w.listed, i)
				}
			case "away", "forget":
				if w.up {
					w.up = false
					w.machine.Leave(w.clock)
				}
				if step == "forget" {
					clear(w.listed)
					w.lost = w.clock
				}
			case "back":
				if !w.up {
					w.up = true
					w.machine.Return(w.clock, hold)
					if _, held := w.machine.Services(); held > 0 && w.hasRead {
						require.True(t, w.machine.Next().Before(w.clock), "the end of holds is another one")
					}
				}
			case "wait": // all running instances register again, if they can
				w.pass(time.Duration(rapid.IntRange(1, 50).Draw(t, "seconds")) * time.Second)
				if w.up && !w.lost.IsZero() || w.up && rapid.Bool().Draw(t, "all") {
					w.listed, w.lost = maps.Clone(w.live), time.Time{}
				}
			case "cut":
				if w.up {
					w.machine.Leave(w.clock)
					w.machine.Return(w.clock, hold)
				}
			case "restart", "restart unknown", "set clock":
				if step == "set clock" {
					w.set(rapid.SampledFrom([]time.Duration{-time.Hour, -20 * time.Second, 20 * time.Second, time.Hour}).Draw(t, "by"))
				}
				w.start(step == "restart unknown")
				clear(w.empty) // an empty service is kept again
			}
			if !w.up {
				w.keep()
				continue // an unreadable one is not settled
			}
			w.read()
			now, hosts := w.serves(t)
			require.Len(t, slices.Compact(slices.Clone(now)), len(now))
			for name := range w.vague {
				if g := w.machine.groups[name]; g == nil || g.unknown == nil { // only its listed state counts
					before = slices.DeleteFunc(before, func(i int) bool { return serviceOf(i).Group() == name })
					delete(w.vague, name)
					maps.DeleteFunc(w.empty, func(s svc, _ time.Time) bool { return s.Group() == name })
				}
			}
			w.ended(t, before, now)
			for _, i := range before {
				held := w.machine.Suspicion.Holds(w.clock) && (w.missing[i] == nil || w.missing[i].most < hold)
				if on, lives := w.live[i]; lives && on && (w.lost.IsZero() || held) {
					if enabled, listed := w.listed[i]; !listed || enabled {
						require.Contains(t, now, i, "a running instance is published")
					}
				}
			}
			for i, on := range w.listed {
				require.Equal(t, on, slices.Contains(now, i), "a listed instance that takes calls is published at once")
			}
			stays := len(slices.DeleteFunc(slices.Clone(now), func(i int) bool { return w.listed[i] }))
			_, held := w.machine.Services()
			if len(w.vague) == 0 {
				require.Equal(t, stays, held)
			}
			if !w.machine.Suspicion.Holds(w.clock) {
				require.Zero(t, stays, "a hold has an end")
			} else if stays > 0 {
				require.False(t, w.machine.Next().After(w.machine.Suspicion.End), "and is looked at then")
				require.False(t, w.machine.Next().IsZero())
			}
			w.named(t, now, hosts)
		}
	})
}

// named checks which services there are, and their hosts.
func (w *world) named(t *rapid.T, now []int, hosts map[svc]string) {
	known := map[string]bool{}
	for _, host := range hosts {
		require.False(t, known[host], host)
		known[host] = true
	}
	for _, s := range services {
		mine := func(i int) bool { return serviceOf(i) == s }
		_, exists := hosts[s]
		switch {
		case slices.ContainsFunc(now, mine):
			delete(w.empty, s)
			require.True(t, exists)
		case slices.ContainsFunc(slices.Collect(maps.Keys(w.listed)), mine): // all of them are switched off
			delete(w.empty, s)
		case w.empty[s].IsZero():
			if exists {
				w.empty[s] = w.clock
			}
		case !w.vague[s.Group()]:
			require.Equal(t, w.clock.Sub(w.empty[s]) < keep, exists, "%s is kept empty", s)
		}
	}
}
