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
)

var (
	modelSeeds = flag.Int("model.seeds", 100, "how many random histories TestModel goes through")
	modelSteps = flag.Int("model.steps", 40, "how many steps each has")
	modelFirst = flag.Uint64("model.first", 1, "the seed of the first")
)

// TestModel has a client go through random histories: names that change, types that come and go, restarts with and without
// versions of what the program has, responses that are rejected in whole or in part, and a server that does all that the
// protocol allows, and takes its time. At rest the handlers have what the server has, and at all times the requests keep to the protocol.
func TestModel(t *testing.T) {
	for i := range uint64(*modelSeeds) {
		seed := *modelFirst + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newModel(t, seed).run() })
		})
	}
}

// model is a program that uses a client, and what its handlers have.
type model struct {
	t      *testing.T
	rand   *rand.Rand
	cfg    adsc.Config
	server *modelServer
	client *adsc.Client
	stop   func()
	wholly bool // some responses are rejected in whole: what was good in them comes with the next stream

	mu    sync.Mutex
	wants map[string][]string // by type; "*" alone for all
	have  map[string]map[string]int
	set   map[string]map[string]int // complete sets on their way, by type
	good  bool                      // nothing is rejected any more
}

// names is a small set, so that all things happen to each.
var names = []string{"a", "b", "c", "d", "e"}

func newModel(t *testing.T, seed uint64) *model {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
	m := &model{
		t: t, rand: r, server: newModelServer(t, rand.New(rand.NewPCG(seed, 1))), //nolint:gosec // no secret
		wholly: r.IntN(3) == 0, wants: map[string][]string{}, have: map[string]map[string]int{}, set: map[string]map[string]int{},
	}
	cfg := adsc.Config{
		Mode: []adsc.Mode{adsc.SotW, adsc.Delta, adsc.Auto}[r.IntN(3)], Node: &corev3.Node{Id: "n"}, Log: slog.New(slog.DiscardHandler),
		Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) },
	}
	if cfg.Mode == adsc.Delta {
		m.server.noDelta = false
	}
	if m.server.forgets || r.IntN(3) == 0 {
		cfg.CompareAfter = time.Duration(1+r.IntN(10)) * time.Second
	}
	cfg.Hooks.Connected = func(string) { // what a stream that ended began is not gone on with
		m.mu.Lock()
		defer m.mu.Unlock()
		clear(m.set)
	}
	cfg.Hooks.Failed = func(err error, wait time.Duration) { t.Log("failed", err, wait) }
	cfg.Hooks.Opened = func(string) { t.Log("opened") }
	m.cfg = bubbled(t, cfg, m.server.sotw, m.server.delta, allowPings)
	t.Logf("mode %v, server: %+v, compare after %v", cfg.Mode, struct{ forgets, chunks, waits, noDelta bool }{
		m.server.forgets, m.server.chunks, m.server.waits, m.server.noDelta,
	}, cfg.CompareAfter)
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
		have := m.have[typeURL]
		if have == nil {
			return errors.New("the type was dropped")
		}
		if err != nil && m.wholly && len(r.Resources)%2 == 0 {
			return err // and nothing of it is taken
		}
		if r.Complete {
			if m.set[typeURL] == nil {
				m.set[typeURL] = map[string]int{}
			}
			maps.Copy(m.set[typeURL], got)
			for _, name := range rejected { // of which the last good one stays
				if version, ok := have[name]; ok {
					m.set[typeURL][name] = version
				}
			}
		}
		maps.Copy(have, got)
		for _, name := range r.Removed {
			delete(have, name)
		}
		if r.Complete && !r.More {
			set := m.set[typeURL]
			maps.DeleteFunc(have, func(name string, _ int) bool { _, there := set[name]; return !there })
			delete(m.set, typeURL)
		}
		m.prune(typeURL)
		m.t.Logf("took of %s: %v, complete %v, more %v, removed %v: %v, but %v", typeURL, got, r.Complete, r.More, r.Removed,
			have, err)
		if err != nil {
			return &adsc.RejectedError{Names: rejected, Err: err}
		}
		return nil
	}
}

// prune drops what is not wanted; m.mu is held.
func (m *model) prune(typeURL string) {
	wants := m.wants[typeURL]
	maps.DeleteFunc(m.have[typeURL], func(name string, _ int) bool {
		return !slices.Contains(wants, "*") && !slices.Contains(wants, name)
	})
}

// subscription wants something of a type.
func (m *model) subscription(typeURL string, wants []string) adsc.Subscription {
	sub := adsc.Subscription{TypeURL: typeURL, Names: wants, Handler: m.handler(typeURL)}
	if slices.Equal(wants, []string{"*"}) && m.rand.IntN(2) == 0 {
		sub.Names = nil
	}
	return sub
}

// someNames is what may be wanted of a type.
func (m *model) someNames() []string {
	if m.rand.IntN(3) == 0 {
		return []string{"*"}
	}
	var some []string
	for _, name := range names {
		if m.rand.IntN(2) == 0 {
			some = append(some, name)
		}
	}
	if m.rand.IntN(8) == 0 || len(some) == 0 {
		some = append(some, "*")
	}
	return some
}

// start starts a client that wants what was wanted, with what was had as far as that is known.
func (m *model) start() {
	m.mu.Lock()
	m.cfg.Subscriptions = nil
	keeps := m.rand.IntN(2) == 0
	clear(m.set)
	for _, typeURL := range slices.Sorted(maps.Keys(m.wants)) {
		sub := m.subscription(typeURL, m.wants[typeURL])
		if !keeps || m.have[typeURL] == nil {
			m.have[typeURL] = map[string]int{}
		} else if m.cfg.Mode == adsc.Delta {
			sub.Versions = map[string]string{}
			for name, version := range m.have[typeURL] {
				sub.Versions[name] = strconv.Itoa(version)
			}
		}
		m.cfg.Subscriptions = append(m.cfg.Subscriptions, sub)
	}
	m.t.Logf("starts with %v, having %v", m.wants, m.have)
	m.mu.Unlock()
	client, err := adsc.New(m.cfg)
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	m.client = client
	m.stop = func() {
		cancel()
		require.ErrorIs(m.t, <-done, context.Canceled)
	}
}

func (m *model) change(typeURL string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wants[typeURL] = m.someNames()
	if m.have[typeURL] == nil {
		m.have[typeURL] = map[string]int{}
	}
	m.t.Logf("wants %v of %s", m.wants[typeURL], typeURL)
	require.NoError(m.t, m.client.Subscribe(m.subscription(typeURL, m.wants[typeURL])))
	m.prune(typeURL)
}

func (m *model) drop(typeURL string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t.Logf("drops %s", typeURL)
	m.client.Unsubscribe(typeURL)
	delete(m.wants, typeURL)
	delete(m.have, typeURL)
	delete(m.set, typeURL)
}

func (m *model) run() {
	types := []string{typeA, typeB, adsc.EndpointType}
	for _, typeURL := range types[:1+m.rand.IntN(3)] {
		m.wants[typeURL] = m.someNames()
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
			if len(m.wants) > 1 {
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
	for typeURL, all := range m.server.content {
		content[typeURL] = maps.Clone(all)
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
	for _, typeURL := range slices.Sorted(maps.Keys(m.wants)) {
		want, _ := m.server.look(typeURL)
		maps.DeleteFunc(want, func(name string, _ int) bool {
			return !slices.Contains(m.wants[typeURL], "*") && !slices.Contains(m.wants[typeURL], name)
		})
		have := m.have[typeURL]
		if typeURL == adsc.EndpointType && (m.cfg.Mode == adsc.SotW || m.server.noDelta) { // absence says nothing
			maps.DeleteFunc(have, func(name string, _ int) bool { _, there := want[name]; return !there })
		}
		require.Equal(m.t, want, have, "%s: wanted: %v", typeURL, m.wants[typeURL])
	}
}
