package consul

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// The model: agents of random habits, and a Consul that is wiped, away, slow, lies, or hides services, against a source
// that restarts at any time, in synthetic time. It does not know the source: an instance that an agent has, and that
// was once served, is served all the time; in the end each living instance is served, no other is, and the source is
// healthy. One seed is one history; CONSUL_MODEL_SEEDS and CONSUL_MODEL_FROM select others.

const (
	modelSeeds  = 20 // of each mix
	modelSteps  = 60
	modelHealed = 20 * time.Minute // after which all has to be as it is
	modelFresh  = 5 * time.Second  // later registrations need not stay: Consul may forget them before the source reads them
)

// modelMixes are the possible faults of one history.
var modelMixes = []string{
	"wipe overtake down slow", "wipe overtake restart slow", "wipe overtake restart down slow lag", "hide restart down",
	"hide odd lag pulse places restart", "odd down lag pulse places slow",
}

func TestModel(t *testing.T) {
	t.Parallel()
	few := modelSeeds
	if testing.Short() {
		few /= 5
	}
	seeds, from := modelEnv(t, "CONSUL_MODEL_SEEDS", few), modelEnv(t, "CONSUL_MODEL_FROM", 1)
	for _, faults := range modelMixes {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			for seed := from; seed < from+seeds && !t.Failed(); seed++ {
				synctest.Test(t, func(t *testing.T) { newModel(t, uint64(seed), faults).run() })
			}
		})
	}
}

func modelEnv(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

type model struct {
	t      *testing.T
	world  *world
	rnd    *rand.Rand
	seed   uint64
	faults map[string]bool
	names  int

	settings Settings

	begun        time.Time
	log          []string
	alive        map[string]time.Time // instances that an agent has, s01/2, and since when
	registered   map[string]bool      // those that Consul has
	deregistered map[string]bool
	pending      map[string]time.Time // alive, but registered again only at that time
	nodes        map[string]uint64    // as Consul created them
	served       map[string]time.Time // alive since then, and served since
	wiped        time.Time
}

func newModel(t *testing.T, seed uint64, faults string) *model {
	m := &model{
		t: t, world: newWorld(t), rnd: rand.New(rand.NewPCG(seed, 7)), seed: seed, faults: map[string]bool{}, begun: time.Now(),
		alive: map[string]time.Time{}, registered: map[string]bool{}, deregistered: map[string]bool{}, pending: map[string]time.Time{},
		nodes: map[string]uint64{}, served: map[string]time.Time{},
	}
	for f := range strings.FieldsSeq(faults) {
		m.faults[f] = true
	}
	m.settings = Settings{RampRate: []int{5, 50}[m.rnd.IntN(2)], Wait: time.Minute}
	m.world.wait = time.Minute
	if m.faults["places"] && m.rnd.IntN(2) == 0 {
		m.world.places = 12
	}
	m.names = 4 + m.rnd.IntN(16)
	return m
}

func (m *model) run() {
	if m.rnd.IntN(2) == 0 { // it tells which cluster it is
		m.world.Change(func() { m.world.Cluster = "1" })
	}
	for i := range m.names {
		for n := range 1 + m.rnd.IntN(3) {
			m.register(fmt.Sprintf("s%02d/%d", i, n))
		}
	}
	m.begin()
	m.pass(2 * time.Minute)
	for range modelSteps {
		m.step()
		m.pass(time.Duration(1+m.rnd.IntN(40)) * time.Second)
	}
	m.say("heal")
	m.world.locked(func() { m.world.slowNames = 0 })
	m.world.datacenter.Restore()
	for _, name := range slices.Sorted(maps.Keys(m.pending)) {
		m.tell(name)
	}
	clear(m.pending)
	m.pass(modelHealed)
	for key := range m.alive {
		m.check(m.serves(key), "%s is alive, and not served in the end", key)
	}
	for key := range m.deregistered {
		m.check(!m.serves(key), "%s has gone, and is served in the end", key)
	}
	m.check(m.world.health().State == sources.Healthy, "it is not healthy in the end")
}

func (m *model) begin() { m.world.start(m.settings) }

func (m *model) say(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%7.1fs ", time.Since(m.begun).Seconds())+fmt.Sprintf(format, args...))
}

func (m *model) check(ok bool, format string, args ...any) {
	if !ok {
		m.say(format, args...)
		h := m.world.health()
		require.FailNow(m.t, fmt.Sprintf("seed %d", m.seed), "%s: %s\n%s", h.State, h.Message, strings.Join(m.log, "\n"))
	}
}

// pass lets time pass, while agents register lost instances again.
func (m *model) pass(d time.Duration) {
	for range int(d / time.Second) {
		pass(time.Second)
		for _, name := range slices.Sorted(maps.Keys(m.pending)) {
			if time.Now().After(m.pending[name]) {
				m.say("back: %s", name)
				delete(m.pending, name)
				m.tell(name)
			}
		}
		for name, registeredAt := range m.alive {
			served := m.serves(name)
			m.check(served || m.served[name] != registeredAt, "%s is alive, and not served any more", name)
			if served && time.Since(registeredAt) > modelFresh {
				m.served[name] = registeredAt
			}
		}
	}
}

func (m *model) any() string { return fmt.Sprintf("s%02d/%d", m.rnd.IntN(m.names), m.rnd.IntN(3)) }

// nodeOf is one of ten nodes, each with several services; a service has instances on several nodes.
func (m *model) nodeOf(key string) string {
	return fmt.Sprint("n", (key[len("s0")]-'0'+key[len("s00/")]-'0')%10)
}

func (m *model) serves(key string) bool {
	name, id, _ := strings.Cut(key, "/")
	return slices.Contains(m.world.endpoints(name), id)
}

// tell has an agent tell Consul of its service.
func (m *model) tell(key string) { m.world.Change(func() { m.put(key) }) }

func (m *model) put(key string) {
	if node := m.nodeOf(key); m.nodes[node] == 0 {
		m.nodes[node] = m.world.Index
	}
	m.registered[key] = true
	m.update(key)
}

// update sets the service of an instance from its registrations.
func (m *model) update(key string) {
	var registrations []*api.ServiceEntry
	name, _, _ := strings.Cut(key, "/")
	for id := range 3 {
		if key := fmt.Sprint(name, "/", id); m.registered[key] {
			registrations = append(registrations, instanceOnNode(fmt.Sprint(id), m.nodeOf(key), m.nodes[m.nodeOf(key)])...)
		}
	}
	if len(registrations) == 0 {
		m.world.RemoveService(name)
		return
	}
	m.world.SetService(name, registrations)
}

func (m *model) register(name string) {
	m.alive[name] = time.Now()
	delete(m.deregistered, name)
	m.tell(name)
}

func (m *model) deregister(name string) {
	delete(m.alive, name)
	delete(m.pending, name)
	delete(m.registered, name)
	m.deregistered[name] = true
	m.world.Change(func() { m.update(name) })
}

func (m *model) step() {
	name := m.any()
	_, alive := m.alive[name]
	op := []string{
		"register", "register", "register", "deregister", "deregister", "wipe", "restart", "down", "up", "hide", "slow", "odd", "lag", "pulse",
	}[m.rnd.IntN(14)]
	switch {
	case op == "register" && !alive:
		m.say("register %s", name)
		m.register(name)
	case op == "deregister" && alive:
		m.say("deregister %s", name)
		m.deregister(name)
	case op == "up" && (m.faults["down"] || m.faults["hide"]):
		m.say("up")
		m.world.Change(func() { m.world.Fails, m.world.Hides, m.world.Shows, m.world.Nodes = nil, false, nil, nil })
	case !m.faults[op]:
	case op == "wipe":
		if time.Since(m.wiped) > 10*time.Minute {
			m.wipe()
		}
	case op == "restart":
		m.restart()
	default:
		m.disturb(op, name)
	}
}

func (m *model) restart() {
	m.say("stop")
	m.world.stop()
	if m.rnd.IntN(2) == 0 {
		m.down()
	}
	m.say("start")
	m.begin()
}

// down lets time pass while the source does not run.
func (m *model) down() { pass(time.Duration(m.rnd.IntN(60)) * time.Second) }

// wipe deletes Consul's data. Its index may be higher than before at the next query.
func (m *model) wipe() {
	m.wiped = time.Now()
	overtakes := m.faults["overtake"] && m.rnd.IntN(2) == 0
	outage := overtakes || m.rnd.IntN(2) == 0
	m.say("wipe; overtakes: %v; outage: %v", overtakes, outage)
	if outage {
		m.world.Change(func() { m.world.Fails = errDown })
		m.pass(time.Duration(1+m.rnd.IntN(8)) * time.Second)
	}
	clear(m.nodes)
	clear(m.registered)
	back := m.rnd.IntN(len(m.alive) + 1)
	m.world.Change(func() {
		index := uint64(2)
		if overtakes {
			index = m.world.Index + 100
		}
		m.world.Lose(index)
		if m.world.Cluster != "" {
			m.world.Cluster += "1"
		}
		m.world.Fails = nil
		for _, name := range slices.Sorted(maps.Keys(m.alive)) {
			if back--; back >= 0 && overtakes {
				m.put(name)
			} else {
				m.pending[name] = time.Now().Add(time.Duration(m.rnd.IntN(200)) * time.Second)
			}
		}
	})
}

// disturb begins or ends a fault of Consul.
func (m *model) disturb(op, name string) {
	chance, variant := m.rnd.IntN(2) == 0, m.rnd.IntN(4)
	m.say("%s %s %v %d", op, name, chance, variant)
	if op == "slow" {
		m.world.locked(func() { m.world.slowNames = time.Duration(variant) * 300 * time.Millisecond })
		return
	}
	m.world.Change(func() { m.spoil(op, name, chance, variant) })
}

func (m *model) spoil(op, name string, chance bool, variant int) {
	service, _, _ := strings.Cut(name, "/")
	refused := api.StatusError{Code: 400, Body: "no"}
	switch op {
	case "down":
		m.world.Fails = []error{errDown, errDenied, refused, errLimited}[variant]
	case "hide":
		switch variant {
		case 0, 1:
			m.world.Hides = true
		case 2:
			m.world.Shows = map[string]bool{service: true}
		default:
			m.world.Nodes = map[string]bool{m.nodeOf(name): true}
		}
	case "pulse":
		m.world.Leaderless, m.world.LastContact = variant%3 == 1, time.Duration(variant%3/2)*time.Minute
	case "odd":
		if m.world.Refusals = nil; chance {
			m.world.Refusals = map[string]error{service: []error{refused, errDown, errDenied}[variant%3]}
		}
	case "lag":
		if m.world.Lags = nil; chance {
			m.world.Lags = map[string][]*api.ServiceEntry{service: nil}
		}
	}
}
