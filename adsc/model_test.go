package adsc_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

var (
	modelSeeds = flag.Int("model.seeds", 100, "how many random histories TestModel goes through")
	modelSteps = flag.Int("model.steps", 40, "how many steps each has")
	modelFirst = flag.Uint64("model.first", 1, "the seed of the first")
)

// TestModel has a client go through random histories: changed names, types that come and go, restarts with and without
// initial versions, responses that are rejected in whole or in part, and a server with every behaviour that the
// protocol allows, and delays. At rest the handlers have the server's resources, and at all times the requests keep to
// the protocol.
func TestModel(t *testing.T) {
	for i := range uint64(*modelSeeds) {
		seed := *modelFirst + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newModel(t, seed).run() })
		})
	}
}

// model is a program that uses a client, and the resources of its handlers.
type model struct {
	t      *testing.T
	rand   *rand.Rand
	cfg    adsc.Config
	server *modelServer
	client *adsc.Client
	stop   func()
	wholly bool // some responses are rejected in whole: their good resources come with the next stream

	mu         sync.Mutex
	subscribed map[string][]string // by type; "*" alone for all
	held       map[string]map[string]int
	set        map[string]map[string]int // complete sets on their way, by type
	good       bool                      // handlers reject no response any more
}

// names is a small set, so that all things happen to each.
var names = []string{"a", "b", "c", "d", "e"}

func newModel(t *testing.T, seed uint64) *model {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
	m := &model{
		t: t, rand: r, server: newModelServer(t, rand.New(rand.NewPCG(seed, 1))), //nolint:gosec // no secret
		wholly: r.IntN(3) == 0, subscribed: map[string][]string{}, held: map[string]map[string]int{}, set: map[string]map[string]int{},
	}
	config := adsc.Config{
		Mode: []adsc.Mode{adsc.SotW, adsc.Delta, adsc.Auto}[r.IntN(3)], Node: &corev3.Node{Id: "n"}, Log: slog.New(slog.DiscardHandler),
		Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) },
	}
	if config.Mode == adsc.Delta {
		m.server.noDelta = false
	}
	if m.server.forgets || r.IntN(3) == 0 {
		config.CompareAfter = time.Duration(1+r.IntN(10)) * time.Second
	}
	config.Hooks.Connected = func(string) { // a new stream does not continue the set of the last one
		m.mu.Lock()
		defer m.mu.Unlock()
		clear(m.set)
	}
	config.Hooks.Failed = func(err error, wait time.Duration) { t.Log("failed", err, wait) }
	server := &xdstest.Server{SotW: m.server.sotw, Delta: m.server.delta}
	inMemory(&config, server.ServeInMemory(t, allowPings))
	m.cfg = config
	t.Logf("mode %v, server: %+v, compare after %v", config.Mode, struct{ forgets, chunks, waits, noDelta bool }{
		m.server.forgets, m.server.chunks, m.server.waits, m.server.noDelta,
	}, config.CompareAfter)
	return m
}

// bad reports whether handlers reject a version.
func (m *model) bad(version int) bool { return !m.good && version%5 == 0 }

// handler is the handler of a type.
func (m *model) handler(typeURL string) adsc.Handler {
	return func(_ context.Context, r *adsc.Response) error {
		time.Sleep(time.Duration(len(r.Resources)) * 5 * time.Millisecond)
		m.mu.Lock()
		defer m.mu.Unlock()
		got, rejected, err := map[string]int{}, []string(nil), error(nil)
		for _, res := range r.Resources {
			name, version := nameAndVersion(m.t, res.Body)
			if r.Delta && (res.Name != name || res.Version != strconv.Itoa(version)) {
				m.t.Errorf("%s@%s has %s@%d", res.Name, res.Version, name, version)
			}
			if _, twice := got[name]; twice {
				m.t.Errorf("%s twice in a response", name)
			}
			if m.bad(version) {
				rejected = append(rejected, name)
				err = fmt.Errorf("%s@%d is bad", name, version)
				continue
			}
			got[name] = version
		}
		held := m.held[typeURL]
		if held == nil {
			return errors.New("the type was dropped")
		}
		if err != nil && m.wholly && len(r.Resources)%2 == 0 {
			return err // and none of its resources is stored
		}
		if r.Complete {
			if m.set[typeURL] == nil {
				m.set[typeURL] = map[string]int{}
			}
			maps.Copy(m.set[typeURL], got)
			for _, name := range rejected { // a rejected resource keeps its last good version
				if version, ok := held[name]; ok {
					m.set[typeURL][name] = version
				}
			}
		}
		maps.Copy(held, got)
		for _, name := range r.Removed {
			delete(held, name)
		}
		if r.Complete && !r.More {
			set := m.set[typeURL]
			maps.DeleteFunc(held, func(name string, _ int) bool { _, exists := set[name]; return !exists })
			delete(m.set, typeURL)
		}
		m.prune(typeURL)
		m.t.Logf("took of %s: %v, complete %v, more %v, removed %v: %v, but %v", typeURL, got, r.Complete, r.More, r.Removed,
			held, err)
		if err != nil {
			return &adsc.RejectedError{Names: rejected, Err: err}
		}
		return nil
	}
}

// prune drops resources outside the subscription; m.mu is held.
func (m *model) prune(typeURL string) {
	subscribed := m.subscribed[typeURL]
	maps.DeleteFunc(m.held[typeURL], func(name string, _ int) bool {
		return !slices.Contains(subscribed, "*") && !slices.Contains(subscribed, name)
	})
}

// subscription wants something of a type.
func (m *model) subscription(typeURL string, subscribed []string) adsc.Subscription {
	subscription := adsc.Subscription{TypeURL: typeURL, Names: subscribed, Handler: m.handler(typeURL)}
	if slices.Equal(subscribed, []string{"*"}) && m.rand.IntN(2) == 0 {
		subscription.Names = nil
	}
	return subscription
}

// someNames returns random names for a subscription to a type.
func (m *model) someNames() []string {
	if m.rand.IntN(3) == 0 {
		return []string{"*"}
	}
	var selected []string
	for _, name := range names {
		if m.rand.IntN(2) == 0 {
			selected = append(selected, name)
		}
	}
	if m.rand.IntN(8) == 0 || len(selected) == 0 {
		selected = append(selected, "*")
	}
	return selected
}

// start starts a client with the last subscriptions, and with the versions of held resources if it keeps them.
func (m *model) start() {
	m.mu.Lock()
	m.cfg.Subscriptions = nil
	keeps := m.rand.IntN(2) == 0
	clear(m.set)
	for _, typeURL := range slices.Sorted(maps.Keys(m.subscribed)) {
		subscription := m.subscription(typeURL, m.subscribed[typeURL])
		if !keeps || m.held[typeURL] == nil {
			m.held[typeURL] = map[string]int{}
		} else if m.cfg.Mode == adsc.Delta {
			subscription.Versions = map[string]string{}
			for name, version := range m.held[typeURL] {
				subscription.Versions[name] = strconv.Itoa(version)
			}
		}
		m.cfg.Subscriptions = append(m.cfg.Subscriptions, subscription)
	}
	m.t.Logf("starts with %v, having %v", m.subscribed, m.held)
	m.mu.Unlock()
	client, err := adsc.New(m.cfg)
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(m.t.Context())
	result := make(chan error, 1)
	go func() { result <- client.Run(ctx) }()
	m.client = client
	m.stop = func() {
		cancel()
		require.ErrorIs(m.t, <-result, context.Canceled)
	}
}

func (m *model) change(typeURL string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subscribed[typeURL] = m.someNames()
	if m.held[typeURL] == nil {
		m.held[typeURL] = map[string]int{}
	}
	m.t.Logf("wants %v of %s", m.subscribed[typeURL], typeURL)
	require.NoError(m.t, m.client.Subscribe(m.subscription(typeURL, m.subscribed[typeURL])))
	m.prune(typeURL)
}

func (m *model) drop(typeURL string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t.Logf("drops %s", typeURL)
	m.client.Unsubscribe(typeURL)
	delete(m.subscribed, typeURL)
	delete(m.held, typeURL)
	delete(m.set, typeURL)
}

func (m *model) run() {
	types := []string{typeA, typeB, adsc.EndpointType}
	for _, typeURL := range types[:1+m.rand.IntN(3)] {
		m.subscribed[typeURL] = m.someNames()
	}
	put := func() { // versions come again, as those do that are made of the content
		m.server.put(types[m.rand.IntN(3)], names[m.rand.IntN(len(names))], max(0, m.rand.IntN(9)-2))
	}
	for range m.rand.IntN(10) {
		put()
	}
	m.start()
	for range *modelSteps {
		switch typeURL := types[m.rand.IntN(3)]; m.rand.IntN(16) {
		case 0, 1, 2, 3, 4:
			put()
		case 5, 6, 7:
			m.change(typeURL)
		case 8:
			m.change(typeURL)
			m.change(typeURL)
		case 9:
			if len(m.subscribed) > 1 {
				m.drop(typeURL)
			}
		case 10:
			m.server.endStreams()
		case 11:
			m.client.Reconnect()
		case 12:
			m.stop()
			m.start()
		default:
			time.Sleep(time.Duration(m.rand.IntN(300)) * time.Millisecond)
		}
		if m.rand.IntN(2) == 0 {
			synctest.Wait()
		}
	}
	m.rest()
}

// rest has the server calm down and its bad versions repaired, and compares.
func (m *model) rest() {
	m.server.mu.Lock()
	m.server.calm = true
	content := map[string]map[string]int{}
	for typeURL, resources := range m.server.content {
		content[typeURL] = maps.Clone(resources)
	}
	m.server.mu.Unlock()
	for _, typeURL := range slices.Sorted(maps.Keys(content)) {
		for name, version := range content[typeURL] {
			if m.bad(version) {
				m.server.put(typeURL, name, version+1)
			}
		}
	}
	time.Sleep(time.Minute)
	if m.wholly {
		m.client.Reconnect()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	m.server.mu.Lock()
	streams := m.server.streams
	m.server.mu.Unlock()
	time.Sleep(time.Minute)
	synctest.Wait()
	m.server.mu.Lock()
	if m.server.streams != streams {
		m.t.Errorf("it has no rest: %d streams in a minute", m.server.streams-streams)
	}
	m.server.mu.Unlock()
	m.stop()

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, typeURL := range slices.Sorted(maps.Keys(m.subscribed)) {
		want, _ := m.server.look(typeURL)
		maps.DeleteFunc(want, func(name string, _ int) bool {
			return !slices.Contains(m.subscribed[typeURL], "*") && !slices.Contains(m.subscribed[typeURL], name)
		})
		held := m.held[typeURL]
		if typeURL == adsc.EndpointType && (m.cfg.Mode == adsc.SotW || m.server.noDelta) { // an absent endpoint resource is not a removal
			maps.DeleteFunc(held, func(name string, _ int) bool { _, exists := want[name]; return !exists })
		}
		require.Equal(m.t, want, held, "%s: wanted: %v", typeURL, m.subscribed[typeURL])
	}
}
