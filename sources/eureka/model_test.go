package eureka

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// The model: two servers that tell each other, instances that renew their leases, each at its time, and one who follows. Servers are killed
// and come back empty, cannot be reached by us or (one of two that knows no more than the other) by instances, answer from caches, which
// may be stuck, or tell no changes; instances come, deregister, are killed, and are set out of service; tributary starts anew. Whoever
// lives and was believed is believed at each moment, and after a rest what is believed is who lives.

const (
	modelBeat  = 3  // seconds, after which a lease is renewed
	modelLease = 9  // after which it is over
	modelCache = 4  // for which servers answer the same
	modelHold  = 12 // longer than that, and what it takes to register anew
	modelStuck = 16 // for which they do if somebody registered while they made it; changes are told for longer
)

// modelServer is one server.
type modelServer struct {
	name    string
	up      bool
	cut     bool // for us
	parted  bool // from instances
	heard   int  // since when they reach it
	silent  bool // it tells no changes
	has     map[string]wire.Instance
	renewed map[string]int
	changes map[string]wire.Instance
	version int64
	answers [2]*client.Reply // cached: all, changes
	asked   [2]int           // when they were made
	stuck   int              // until when they stay, as those do that were made while somebody registered
}

func (s *modelServer) start(now int) {
	s.up, s.heard, s.version = true, now, 0
	s.has, s.renewed, s.changes = map[string]wire.Instance{}, map[string]int{}, map[string]wire.Instance{}
	s.answers, s.stuck = [2]*client.Reply{}, 0
}

// model is the world. It is the asker.
type model struct {
	t       *testing.T
	r       *rand.Rand
	now     int // in seconds
	ms      int64
	servers []*modelServer
	living  map[string]bool // and whether they are in service

	settings  Settings
	follower  *follower
	state     *state
	published []*resource.Resource
	born      map[string]int
	known     map[string]bool // who was believed, and has been living since
	begun     bool            // tributary was started, and has read nothing yet
	history   []string
}

func (m *model) at() time.Time { return start.Add(time.Duration(m.now) * time.Second) }

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf("%d: ", m.now)+fmt.Sprintf(format, args...))
}

// tick is the next millisecond in which something happens.
func (m *model) tick() int64 {
	m.ms = max(m.ms+1, m.at().UnixMilli())
	return m.ms
}

func (m *model) instance(ip string) wire.Instance {
	i := up(ip)[0]
	if i.Registered, i.Updated, i.Action = m.tick(), m.ms, "ADDED"; !m.living[ip] {
		i.Status, i.Overridden = wire.OutOfService, wire.OutOfService
	}
	return i
}

func (m *model) register(s *modelServer, ip string) {
	i := m.instance(ip)
	s.has[ip], s.changes[ip], s.renewed[ip] = i, i, m.now
	s.version++
}

func (m *model) remove(s *modelServer, ip string) {
	i, there := s.has[ip]
	if !there {
		return
	}
	i.Action, i.Evicted, i.Updated = wire.Deleted, m.tick(), m.ms
	i.Expires = start.Add(time.Duration(s.renewed[ip]+modelLease) * time.Second).UnixMilli()
	s.changes[ip] = i
	delete(s.has, ip)
	s.version++
}

// each calls f with every server that instances reach.
func (m *model) each(f func(*modelServer)) {
	for _, s := range m.servers {
		if s.up && !s.parted {
			f(s)
		}
	}
}

// beat is what happens in a second by itself: leases are renewed, of whoever is not known anew, and are over.
func (m *model) beat() {
	m.each(func(s *modelServer) {
		for _, ip := range slices.Sorted(maps.Keys(m.living)) {
			if (m.now+int(ip[len(ip)-1]))%modelBeat != 0 {
				continue
			}
			// Who renews says of when what he registered is: a server that has something older, from before it was parted, has him register anew.
			if i, there := s.has[ip]; !there || (i.Status != wire.OutOfService) != m.living[ip] {
				m.register(s, ip)
			}
			s.renewed[ip] = m.now
		}
	})
	for _, s := range m.servers {
		if !s.up {
			continue
		}
		for _, ip := range slices.Sorted(maps.Keys(s.has)) {
			if m.now-s.renewed[ip] > modelLease {
				m.remove(s, ip)
			}
		}
		for ip, i := range s.changes { // they are told for a while
			if m.at().UnixMilli()-i.Updated > 20_000 {
				delete(s.changes, ip)
			}
		}
	}
}

func (m *model) Servers() []string { return []string{"a", "b"} }

var errModel = errors.New("away")

func (m *model) All(_ context.Context, name string) (*client.Reply, error) { return m.ask(name, 0) }

func (m *model) Changes(_ context.Context, name string) (*client.Reply, error) { return m.ask(name, 1) }

func (m *model) One(_ context.Context, name string, key wire.Key) (*client.Reply, error) {
	s := m.servers[slices.Index(m.Servers(), name)]
	if !s.up || s.cut {
		return nil, errModel
	}
	a := &wire.Answer{}
	if i, there := s.has[key.ID]; there {
		i.Expires = start.Add(time.Duration(s.renewed[key.ID]+modelLease) * time.Second).UnixMilli()
		a.Instances = append(a.Instances, i)
	}
	return &client.Reply{Answer: a}, nil
}

func (m *model) ask(name string, what int) (*client.Reply, error) {
	s := m.servers[slices.Index(m.Servers(), name)]
	switch {
	case !s.up || s.cut:
		return nil, errModel
	case what == 1 && s.silent:
		return nil, client.ErrNoChanges
	case s.answers[what] != nil && (m.now-s.asked[what] < modelCache || m.now < s.stuck && m.now-s.asked[what] < modelStuck):
		return s.answers[what], nil
	}
	a, from, counts := &wire.Answer{Version: 1}, s.has, map[string]int{}
	if what == 1 {
		a.Version, from = s.version, s.changes
	}
	for _, ip := range slices.Sorted(maps.Keys(from)) {
		a.Instances = append(a.Instances, from[ip])
	}
	for _, i := range s.has {
		counts[i.Status]++
	}
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		a.Hash += fmt.Sprintf("%s_%d_", status, counts[status])
	}
	s.answers[what], s.asked[what] = &client.Reply{Answer: a, Sum: sha256.Sum256(fmt.Append(nil, *a))}, m.now
	return s.answers[what], nil
}

// begin is a start of tributary, with what an earlier run left.
func (m *model) begin() {
	marks, kept := view.Marks{}, note{}
	mapper, err := mapping.New(mapping.Options{}, nil)
	require.NoError(m.t, err)
	if m.state != nil {
		if marks = m.follower.marks; len(m.follower.view.Instances()) > 0 { // something was read
			marks = m.follower.signs()
		}
		text, err := json.Marshal(note{
			Note: m.state.NoteOf(registry.Suspicion{Away: m.state.away}), Doubts: m.state.doubts(m.follower.server),
		})
		require.NoError(m.t, err)
		require.NoError(m.t, json.Unmarshal(text, &kept))
	}
	m.begun = true
	m.follower = newFollower(m, newCounts(), 0, marks)
	m.follower.now = m.at
	m.state = newState(mapper, m.settings)
	m.state.recall(kept, m.at())
	if len(m.published) > 0 {
		m.state.restore("orders", m.published)
	}
	m.state.Recall(kept.Missing, m.at())
}

// read is one turn of tributary, and what must be true after it.
func (m *model) read(all bool) {
	r, err := m.follower.next(m.t.Context(), all)
	if err != nil {
		require.ErrorIs(m.t, err, errUnreachable)
		if m.state.away.IsZero() {
			m.state.away = m.at()
		}
	} else {
		asked := m.state.doubts(m.follower.server)
		require.NoError(m.t, advance(m.t.Context(), m.follower, m.state, r, m.at()))
		for _, c := range m.state.Contents(m.at()) {
			m.published = c.Resources
		}
		if m.begun {
			m.forgive(asked)
		}
		m.begun = false
	}
	believed := m.believed()
	m.note("read from %q, %v: %v", m.follower.server, err, slices.Sorted(maps.Keys(believed)))
	for ip := range m.known {
		if !m.living[ip] {
			delete(m.known, ip)
		} else if !believed[ip] {
			require.Fail(m.t, ip+" lives and is believed no more", "%v", m.history[max(0, len(m.history)-60):])
		}
	}
	for ip := range believed {
		// Before, an older answer need not have it, or has what it was before. And the hold of one that was at its place before does not begin
		// again when it starts.
		listed := m.state.present[mapping.InstanceOf(wire.Key{App: "ORDERS", ID: ip})] != nil
		if m.living[ip] && m.now-m.born[ip] > modelStuck && listed {
			m.known[ip] = true
		}
	}
}

// forgive has nothing expected of those who expired at the server that a new run reads first, which no longer hears of them, since the run
// before read it: as the README says, the others are asked for what was there only at them.
func (m *model) forgive(asked map[string]doubt) {
	s := m.servers[slices.Index(m.Servers(), m.follower.server)]
	for ip := range m.known {
		_, there := s.has[ip]
		if _, known := asked[mapping.InstanceOf(wire.Key{App: "ORDERS", ID: ip})]; s.parted && !there && !known {
			delete(m.known, ip)
		}
	}
}

// change is something that happens.
func (m *model) change() {
	ip := fmt.Sprintf("10.0.0.%d", 1+m.r.IntN(6))
	_, lives := m.living[ip]
	which := m.r.IntN(2)
	s, other := m.servers[which], m.servers[1-which]
	switch n := m.r.IntN(16); {
	case n < 4 && !lives:
		m.living[ip], m.born[ip] = true, m.now
		m.note("%s starts", ip)
		m.each(func(s *modelServer) { m.register(s, ip) })
	case n == 4 && lives:
		delete(m.living, ip)
		m.note("%s deregisters", ip)
		m.each(func(s *modelServer) { m.remove(s, ip) })
	case n == 5 && lives:
		delete(m.living, ip)
		m.note("%s is killed", ip)
	case n == 6 && lives && !s.parted && !other.parted && m.now >= max(s.stuck, other.stuck):
		m.living[ip] = !m.living[ip]
		m.note("%s is in service: %t", ip, m.living[ip])
		m.each(func(s *modelServer) { m.register(s, ip) })
	case n == 7 && s.up && !other.parted && m.now-other.heard > modelBeat: // else who that one did not hear of expires there only now
		s.up = false
		m.note("%s is killed", s.name)
	case n == 8 && !s.up:
		s.start(m.now)
		s.silent = m.r.IntN(4) == 0
		m.note("%s starts, and tells changes: %t", s.name, !s.silent)
	case n == 9 && !other.parted && m.now-other.heard > modelBeat:
		s.cut = !s.cut
		m.note("%s is cut off: %t", s.name, s.cut)
	case n == 10 && s.parted:
		s.parted, s.heard = false, m.now
		m.note("%s hears of instances", s.name)
	case n == 10 && other.up && !other.cut && !other.parted && m.now >= max(s.stuck, other.stuck) && m.now-other.heard > modelBeat+modelCache:
		s.parted = true
		m.note("%s hears of no instance", s.name)
	case n == 12 && s.up && !s.parted && !other.parted && m.named():
		s.stuck = m.now + modelStuck
		for what := range s.answers {
			if m.now-s.asked[what] >= modelCache {
				s.answers[what] = nil // and it makes another one now
			}
			_, _ = m.ask(s.name, what)
		}
		m.note("the cache of %s is stuck", s.name)
	case n == 11:
		m.note("tributary starts")
		m.begin()
		for _, s := range m.servers {
			s.stuck = 0
		}
	}
}

// named reports whether the names of all who are believed are known. A run that was just started does not know those that were not in
// doubt, so that it cannot ask for them before they were listed once more.
func (m *model) named() bool {
	for ip := range m.believed() {
		instance := mapping.InstanceOf(wire.Key{App: "ORDERS", ID: ip})
		p, l := m.state.present[instance], m.state.lost[instance]
		if (p == nil || p.key == wire.Key{}) && (l == nil || l.key == wire.Key{}) {
			return false
		}
	}
	return true
}

// believed are the addresses that are believed.
func (m *model) believed() map[string]bool {
	all := map[string]bool{}
	m.state.Endpoints(func(_ mapping.ID, k registry.Known[registry.Endpoint]) { all[k.Value.Address] = true })
	return all
}

// modelSeeds are how many histories there are: EUREKA_MODEL_SEEDS, or 400.
func modelSeeds() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("EUREKA_MODEL_SEEDS"), 10, 64); err == nil {
		return n
	}
	return 400
}

func TestModel(t *testing.T) {
	for seed := range modelSeeds() {
		m := &model{
			t: t, r: rand.New(rand.NewPCG(seed, 1)), living: map[string]bool{}, born: map[string]int{}, known: map[string]bool{},
			settings: Settings{Hold: modelHold * time.Second, KeepEmpty: time.Hour},
			servers:  []*modelServer{{name: "a"}, {name: "b"}}, history: []string{fmt.Sprint("seed ", seed)},
		}
		for _, s := range m.servers {
			s.start(0)
		}
		m.begin()
		for range 200 {
			m.now++
			m.change()
			m.beat()
			m.read(m.r.IntN(20) == 0)
		}
		for _, s := range m.servers { // a rest
			if s.cut, s.parted, s.stuck = false, false, 0; !s.up {
				s.start(m.now)
			}
		}
		for range modelHold + 2*modelCache + modelLease + 2 {
			m.now++
			m.beat()
			m.read(false)
		}
		want := []string{}
		for ip, serves := range m.living {
			if serves {
				want = append(want, ip)
			}
		}
		slices.Sort(want)
		got := slices.AppendSeq([]string{}, maps.Keys(m.believed()))
		slices.Sort(got)
		require.Equal(t, want, got, "%v", m.history)
	}
}
