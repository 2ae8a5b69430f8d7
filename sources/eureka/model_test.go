package eureka

import (
	"context"
	"crypto/sha256"
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

	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// The model has two servers with equal content, instances that renew their leases, and a run of the source. Servers are
// killed and restart empty, cannot be reached, answer from caches that may be stuck, or offer no changes. Instances
// register, deregister, are killed, and go out of service. tributary restarts. An instance that is alive and was served
// is served at each moment. After a rest the source serves exactly the instances that are alive.

const (
	modelBeat  = 3  // seconds between renewals
	modelLease = 9  // after which an instance expires
	modelCache = 4  // a server repeats an answer for so long
	modelStuck = 16 // the same if an instance registered meanwhile; changes are reported for longer
	modelHold  = 24 // longer than a stuck cache, and than it takes to register again
)

// modelServer is a server.
type modelServer struct {
	name      string
	running   bool
	cut       bool // tributary cannot reach it
	silent    bool // it offers no changes
	instances map[string]wire.Instance
	renewed   map[string]int
	changes   map[string]wire.Instance
	replies   map[string]*response // cached, by path
	cachedAt  map[string]int       // when they were made
	stuck     int                  // until when they stay
}

func (s *modelServer) start() {
	s.running, s.stuck = true, 0
	s.instances, s.renewed, s.changes = map[string]wire.Instance{}, map[string]int{}, map[string]wire.Instance{}
	s.replies, s.cachedAt = map[string]*response{}, map[string]int{}
}

// model is the world. It implements serverAPI.
type model struct {
	t       *testing.T
	random  *rand.Rand
	now     int // in seconds
	clock   wire.Number
	servers []*modelServer
	living  map[string]bool // whether instances are in service
	born    map[string]int
	stuck   int // until when a cache was stuck last

	source  *Source
	sink    *shelf
	current *state
	safe    map[string]bool // instances that were served, and are alive since
	history []string
}

func (m *model) time() time.Time { return timeAt(time.Duration(m.now) * time.Second) }

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf("%d: ", m.now)+fmt.Sprintf(format, args...))
}

// tick returns the next unused millisecond.
func (m *model) tick() wire.Number {
	m.clock = max(m.clock+1, wire.Number(m.time().UnixMilli()))
	return m.clock
}

func (m *model) register(server *modelServer, address string) {
	instance := up(address)[0]
	instance.Registered, instance.Action = m.tick(), "ADDED"
	if instance.Updated = m.clock; !m.living[address] {
		instance.Status, instance.Overridden = wire.OutOfService, wire.OutOfService
	}
	server.instances[address], server.renewed[address] = instance, m.now
	server.changed(address, instance, m.clock)
}

func (m *model) remove(server *modelServer, address string) {
	if instance, listed := server.instances[address]; listed {
		instance.Action = wire.Deleted
		server.changed(address, instance, m.tick())
		delete(server.instances, address)
	}
}

// changed reports a change. Evicted is the time of any change here.
func (s *modelServer) changed(address string, instance wire.Instance, when wire.Number) {
	instance.Evicted = when
	s.changes[address] = instance
}

// each calls f with every server that runs.
func (m *model) each(f func(*modelServer)) {
	for _, server := range m.servers {
		if server.running {
			f(server)
		}
	}
}

// beat renews leases, registers unlisted instances again, and expires leases.
func (m *model) beat() {
	m.each(func(server *modelServer) {
		for _, address := range slices.Sorted(maps.Keys(m.living)) {
			if (m.now+int(address[len(address)-1]))%modelBeat != 0 {
				continue
			}
			if _, listed := server.instances[address]; !listed {
				m.register(server, address)
			}
			server.renewed[address] = m.now
		}
		for _, address := range slices.Sorted(maps.Keys(server.instances)) {
			if m.now-server.renewed[address] > modelLease {
				m.remove(server, address)
			}
		}
		for address, change := range server.changes {
			if wire.Number(m.time().UnixMilli())-change.Evicted > 20_000 {
				delete(server.changes, address)
			}
		}
	})
}

func (m *model) Servers() []string { return []string{"a", "b"} }

var errModel = errors.New("away")

func (m *model) Listing(_ context.Context, name string, previous *response) (*response, error) {
	reply, err := m.reply(name, "/apps")
	if err == nil && reply.Sum == previous.Sum {
		return previous, nil
	}
	return reply, err
}

func (m *model) Changes(_ context.Context, name string, _ *response) (*response, error) {
	return m.reply(name, "/apps/delta")
}

func (m *model) reply(name, path string) (*response, error) {
	server := m.servers[slices.Index(m.Servers(), name)]
	if !server.running || server.cut || path != "/apps" && server.silent {
		return nil, errModel
	}
	age := m.now - server.cachedAt[path]
	if server.replies[path] != nil && (age < modelCache || m.now < server.stuck && age < modelStuck) {
		return server.replies[path], nil
	}
	content := server.instances
	if path != "/apps" {
		content = server.changes
	}
	answer, text := &wire.Answer{}, []byte(name)
	for _, address := range slices.Sorted(maps.Keys(content)) {
		instance := content[address]
		answer.Instances = append(answer.Instances, instance)
		text = fmt.Append(text, instance.ID, instance.Action, instance.Registered, instance.Evicted)
	}
	server.replies[path] = &response{Answer: answer, Sum: sha256.Sum256(text)}
	server.cachedAt[path] = m.now
	return server.replies[path], nil
}

// poll is a poll of the source, and checks its result.
func (m *model) poll() {
	batch := m.current.Poll(m.t.Context(), m.time())
	require.NoError(m.t, m.sink.ReplaceAll(batch.Contents))
	registry.KeepNote(m.sink, batch.Note, nil)
	served := m.served()
	m.note("polled %q, %v: %v", m.Servers()[m.current.Follower.Server], batch.Health.State, slices.Sorted(maps.Keys(served)))
	for address := range m.safe {
		if !m.living[address] {
			delete(m.safe, address)
		} else if !served[address] {
			require.Fail(m.t, address+" is alive and no longer served", "%v", m.history[max(0, len(m.history)-60):])
		}
	}
	for address := range served {
		// Earlier, an older answer need not have it. And the hold of an instance that was at its place before does not begin
		// again.
		_, listed := m.current.listed[mapping.InstanceOf(up(address)[0].Key)]
		if m.living[address] && m.now-m.born[address] > modelStuck && listed {
			m.safe[address] = true
		}
	}
}

// change is a random event.
func (m *model) change() {
	address := fmt.Sprintf("10.0.0.%d", 1+m.random.IntN(8))
	_, lives := m.living[address]
	selected := m.random.IntN(2)
	server := m.servers[selected]
	switch event := m.random.IntN(16); {
	case event < 4 && !lives:
		m.living[address], m.born[address] = true, m.now
		m.note("%s starts", address)
		m.each(func(server *modelServer) { m.register(server, address) })
	case event == 4 && lives:
		delete(m.living, address)
		m.note("%s deregisters", address)
		m.each(func(server *modelServer) { m.remove(server, address) })
	case event == 5 && lives:
		delete(m.living, address)
		m.note("%s is killed", address)
	case event == 6 && lives && m.now >= max(m.servers[0].stuck, m.servers[1].stuck):
		m.living[address], m.born[address] = !m.living[address], m.now // a cache may have the earlier status
		delete(m.safe, address)
		m.note("%s is in service: %t", address, m.living[address])
		m.each(func(server *modelServer) { m.register(server, address) })
	case event == 7 && server.running:
		server.running = false
		m.note("%s is killed", server.name)
	case event == 8 && !server.running:
		server.start()
		server.silent = m.random.IntN(4) == 0
		m.note("%s starts, and offers changes: %t", server.name, !server.silent)
	case event == 9:
		server.cut = !server.cut
		m.note("%s is cut off: %t", server.name, server.cut)
	case event == 11:
		m.note("tributary restarts")
		m.current = begun(m.source, m.sink, m.time())
	case event == 12 && server.running && m.now-m.stuck > modelHold: // not twice in one hold
		server.stuck = m.now + modelStuck
		m.stuck = server.stuck
		m.note("the cache of %s is stuck", server.name)
	}
}

// served returns the addresses that the source serves.
func (m *model) served() map[string]bool {
	addresses := map[string]bool{}
	m.current.Endpoints(func(_ mapping.ID, endpoint registry.Known) {
		addresses[endpoint.Value.Address] = true
	})
	return addresses
}

// modelSeeds returns the number of histories: EUREKA_MODEL_SEEDS, or 400.
func modelSeeds() uint64 {
	if seeds, err := strconv.ParseUint(os.Getenv("EUREKA_MODEL_SEEDS"), 10, 64); err == nil {
		return seeds
	}
	return 400
}

func TestModel(t *testing.T) {
	mapper, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	for seed := range modelSeeds() {
		m := &model{
			t: t, random: rand.New(rand.NewPCG(seed, 1)),
			living: map[string]bool{}, born: map[string]int{}, safe: map[string]bool{},
			servers: []*modelServer{{name: "a"}, {name: "b"}}, history: []string{fmt.Sprint("seed ", seed)},
			sink: newShelf(),
		}
		settings := Settings{PollSettings: registry.PollSettings{
			Hold: modelHold * time.Second, KeepEmpty: time.Hour, Resync: time.Hour, Interval: time.Second,
		}}
		m.source = newSource(settings, m, mapper)
		for _, server := range m.servers {
			server.start()
		}
		m.current = begun(m.source, m.sink, m.time())
		for range 200 {
			m.now++
			m.change()
			m.beat()
			if m.random.IntN(20) == 0 {
				m.current.Follower.Returns = time.Time{}
			}
			m.poll()
		}
		for _, server := range m.servers { // a rest
			if server.cut, server.stuck = false, 0; !server.running {
				server.start()
			}
		}
		for range modelHold + 2*modelCache + modelLease + 2 {
			m.now++
			m.beat()
			m.poll()
		}
		want, got := []string{}, slices.Sorted(maps.Keys(m.served()))
		for _, address := range slices.Sorted(maps.Keys(m.living)) {
			if m.living[address] {
				want = append(want, address)
			}
		}
		require.Equal(t, want, append([]string{}, got...), "%v", m.history)
	}
}
