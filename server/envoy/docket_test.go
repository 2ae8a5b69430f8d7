package envoy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/server/xds"
)

// plaintiff is a client in a model: what it rejects, as a server knows.
type plaintiff struct {
	complainant
	rejects map[xds.Resource]bool
	unsure  bool                    // it is yet to answer
	turn    uint64                  // when something changed last that bears on what it rejects
	owed    map[xds.Resource]uint64 // what is to be heard, and since which turn
}

func (p *plaintiff) news(l look) (news []xds.Resource) {
	for r := range p.rejects {
		if p.turn > l.past.turn || !slices.Contains(l.past.about, r) {
			news = append(news, r)
		}
	}
	return news
}

// What a client rejects is heard, whatever else it says, and however what it says, what is looked at and what is heard cross; what nobody rejects any more is forgotten.
func TestNoComplaintIsLost(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a test's
		d := newDocket(time.Second)
		now, turn := time.Unix(0, 0), uint64(1)
		var all []*plaintiff
		for i := range uint64(4) {
			all = append(all, &plaintiff{complainant: complainant{i / 2, fmt.Sprint(i % 2)}, rejects: make(map[xds.Resource]bool), owed: make(map[xds.Resource]uint64)})
		}
		of := func(l look) *plaintiff {
			return all[slices.IndexFunc(all, func(p *plaintiff) bool { return p.complainant == l.complainant })]
		}
		type hearing struct {
			look
			about []xds.Resource
			turn  uint64
		}
		heard := make(map[complainant]hearing)
		says := func(p *plaintiff) {
			turn++
			r := xds.Resource{Name: fmt.Sprint(random.IntN(3)), Version: fmt.Sprint(random.IntN(2))}
			maps.DeleteFunc(p.rejects, func(old xds.Resource, _ bool) bool { return old.Name == r.Name })
			maps.DeleteFunc(p.owed, func(old xds.Resource, _ uint64) bool { return old.Name == r.Name })
			rejects := random.IntN(2) == 0
			if rejects {
				p.rejects[r], p.turn = true, turn // it has changed: that is why the client was told
				for r := range p.rejects {
					p.owed[r] = turn
				}
			}
			p.unsure = false
			d.take(p.complainant, fmt.Sprint(p.stream), rejects, now)
		}
		hear := func(l look) {
			p := of(l)
			if len(heard) == 2 {
				d.hold(l)
				return
			}
			d.begin(l)
			of := hearing{look: l, turn: turn}
			if len(p.news(l)) > 0 {
				of.about = slices.Collect(maps.Keys(p.rejects))
			}
			heard[l.complainant] = of
			for _, r := range of.about {
				delete(p.owed, r)
			}
		}
		sit := func() {
			for _, l := range d.due(now) {
				p := of(l)
				rejects, unsure := len(p.rejects) > 0, p.unsure
				if random.IntN(4) == 0 {
					says(p) // while it is looked at
				}
				switch {
				case rejects && !unsure && len(p.rejects) > 0:
					hear(l)
				case rejects:
					d.found(l, true, now)
				default:
					d.found(l, false, now)
				}
			}
		}
		end := func(h hearing) {
			p, r := of(h.look), result{}
			switch {
			case len(h.about) == 0:
			case random.IntN(4) == 0:
				r.ended = endedAgain
				for _, of := range h.about {
					if p.rejects[of] {
						p.owed[of] = turn
					}
				}
			default:
				r = result{endedUnexplained, past{about: h.about, turn: h.turn}}
			}
			delete(heard, h.complainant)
			d.done(h.look, r, time.Duration(random.IntN(3))*time.Second, now)
		}
		for range 60 {
			switch random.IntN(5) {
			case 0, 1:
				says(all[random.IntN(len(all))])
			case 2:
				all[random.IntN(len(all))].unsure = true
			case 3:
				for _, of := range heard {
					end(of)
					break
				}
			default:
				now = now.Add(time.Duration(random.IntN(800)) * time.Millisecond)
			}
			sit()
		}
		for _, p := range all {
			p.unsure = false
		}
		for range 100 { // they say no more
			now = now.Add(d.wait(now))
			for _, l := range d.due(now) {
				switch p := of(l); {
				case len(p.rejects) > 0:
					hear(l)
				default:
					d.found(l, false, now)
				}
			}
			for _, of := range slices.Collect(maps.Values(heard)) {
				end(of)
			}
		}
		for _, p := range all {
			require.Empty(t, p.owed, "seed %d", seed)
			require.Equal(t, len(p.rejects) > 0, d.open[p.complainant] != nil, "seed %d: %v", seed, p)
		}
	}
}

// However many complain at an address, one of them is looked at at a time, and none while one is heard or they rest; others are not held up.
func TestAnAddressIsHeardOneAtATime(t *testing.T) {
	now := time.Unix(0, 0)
	d := newDocket(time.Second)
	for i := range uint64(1000) {
		d.take(complainant{i, "t"}, "many", true, now)
	}
	d.take(complainant{1000, "t"}, "one", true, now)
	now = now.Add(time.Second)
	all := d.due(now)
	require.Len(t, all, 2)
	require.Equal(t, []uint64{0, 1000}, []uint64{all[0].stream, all[1].stream})
	d.begin(all[0])
	d.found(all[1], false, now)
	require.Empty(t, d.due(now))
	require.Equal(t, time.Hour, d.wait(now), "who is heard rings")
	d.done(all[0], result{ended: endedUnexplained}, 9*time.Second, now)
	require.Empty(t, d.due(now))
	require.Equal(t, 9*time.Second, d.wait(now))
	now = now.Add(9 * time.Second)
	all = d.due(now)
	require.Len(t, all, 1)
	d.hold(all[0])
	require.Empty(t, d.due(now))
	d.free()
	require.Equal(t, uint64(1), d.due(now)[0].stream)
	for i := range uint64(1000) {
		d.found(look{complainant: complainant{i, "t"}, said: 1}, false, now)
	}
	require.Empty(t, d.open)
	require.Empty(t, d.hosts)
}

// Who says nothing is looked at ever less often, until he says something.
func TestWhoSaysNothingIsLookedAtEverLessOften(t *testing.T) {
	now, d := time.Unix(0, 0), newDocket(time.Second)
	who := complainant{1, "t"}
	d.take(who, "host", true, now)
	var waits []time.Duration
	for range 7 {
		waits = append(waits, d.wait(now))
		now = now.Add(d.wait(now))
		d.found(d.due(now)[0], true, now)
	}
	require.Equal(t, []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, lookSeldom, lookSeldom}, waits)
	require.True(t, d.take(who, "host", true, now))
	require.Equal(t, time.Second, d.wait(now))
	now = now.Add(time.Second)
	d.found(d.due(now)[0], true, now)
	require.Equal(t, lookAgain, d.wait(now))
}

// BenchmarkLooks is of one look at what clients of one address, or each of its own, complain of, who say nothing.
func BenchmarkLooks(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		for name, hosts := range map[string]int{"one address": 1, "all": n} {
			b.Run(fmt.Sprint(n, " of ", name), func(b *testing.B) {
				now, d := time.Unix(0, 0), newDocket(time.Second)
				for i := range n {
					d.take(complainant{uint64(i), "t"}, fmt.Sprint(i%hosts), true, now)
				}
				for looks := 0; looks < b.N; {
					now = now.Add(d.wait(now))
					for _, l := range d.due(now) {
						looks++
						d.found(l, true, now)
					}
				}
			})
		}
	}
}

// Of who has left nothing is kept, however his complaint ended.
func TestWhoIsGoneComplainsOfNothing(t *testing.T) {
	s := serve(t, answering(t, "a", "one."))
	odd := s.critic(nodes[0], func(string, string, []byte) string { return "no" })
	s.eventually(func() bool { return s.ended(endedUnexplained) > 1 }, "of its clusters and routes")
	s.eventually(func() bool { // there is nothing more to be heard
		s.catalog.judge.mu.Lock()
		defer s.catalog.judge.mu.Unlock()
		for _, c := range s.catalog.judge.docket.open {
			if !c.due.IsZero() {
				return false
			}
		}
		return len(s.catalog.judge.docket.open) > 0
	}, "")
	odd.leave()
	s.eventually(func() bool { return len(s.open()) == 0 }, "")
}

// What is rejected is not kept if it is much.
func TestManyRejectionsAreNotKept(t *testing.T) {
	var objects []*resource.Resource
	for i := range maxRejected {
		objects = append(objects, serviceEntry(t, fmt.Sprint("s", i)))
	}
	s := serve(t, objects...)
	s.critic(nodes[0], func(url, _ string, _ []byte) string { return map[bool]string{true: "no"}[url == xds.ClusterURL] })
	heard := func() *complaint {
		s.catalog.judge.mu.Lock()
		defer s.catalog.judge.mu.Unlock()
		for _, c := range s.catalog.judge.docket.open {
			if c.due.IsZero() && !c.heard {
				return c
			}
		}
		return nil
	}
	s.eventually(func() bool { return s.ended(endedUnexplained) > 0 && heard() != nil }, "")
	require.Empty(t, heard().about)
	ended := s.ended(endedUnexplained)
	s.table.Apply([]*resource.Resource{serviceEntry(t, "more")}, nil)
	s.eventually(func() bool { return s.ended(endedUnexplained) > ended }, "it is heard once more, of what is new")
}
