package relay

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

var (
	seed    = flag.Uint64("reloads.seed", 0, "run TestReloads with this seed alone")
	seeds   = flag.Uint64("reloads.seeds", 3, "run TestReloads with as many seeds")
	reloads = flag.Int("reloads", 25, "how many reloads each run of TestReloads makes")
)

// TestReloads is a model of reloads. Random configurations follow each other: sources are renamed, trade places,
// replace others, merge, transform, come and go; some configurations are refused. Meanwhile places change or cannot be
// read, and the relay restarts. Clients of both protocol variants and a reader of the view check all the time that no
// object of both the old and the new configuration is missing. At the end they see the same as a fresh start with the
// same configuration and all places reachable.
//
// A run is repeated by its seed: go test ./internal/relay -run TestReloads -reloads.seed N -reloads 2000.
func TestReloads(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), *seeds
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last; s++ {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			t.Parallel()
			newModel(t, s).run(*reloads)
		})
	}
}

// model is the world of one run.
type model struct {
	t       *testing.T
	rand    *rand.Rand
	dir     string
	places  []*place
	config  []modelled
	relay   *rig
	address string // where it listens
	promise
	clients []*client
	checked atomic.Uint64       // the revision of the view that was checked last
	fresh   map[string]contents // the content of configurations, by themselves and the state of the places
	edits   int
	history []string // the steps of the test
}

// place is somewhere to read from.
type place struct {
	name    string
	first   int            // differs from objects of other places, so that it shows when it was read
	objects map[string]int // to a port, by "kind namespace/name"
	text    string         // the same
	away    bool
	at      string // where its relay listens, if it is reached through one
	relay   *rig   // nil if it does not run
}

// modelled is a source of a configuration.
type modelled struct {
	name       string
	place      *place
	transform  int
	precedence int
	merge      bool
	delay      int
}

var transforms = []string{
	"",
	", transform: {namespaces: {one: other}}",
	", transform: {exclude: [{names: [a, b]}]}",
	", transform: {labels: {add: {t: u}}}",
}

func (m modelled) String() string {
	address := "fs://./" + m.place.name
	settings := fmt.Sprintf(", quietDelay: %dms, rescanInterval: 100ms", 1+m.delay)
	if m.place.at != "" {
		address, settings = "xds://"+m.place.at, ""
	}
	return m.at(address) + settings
}

// at returns the source as it is configured with the address of its place.
func (m modelled) at(address string) string {
	text := fmt.Sprintf("name: %s, address: '%s', precedence: %d, guard: off%s", m.name, address, m.precedence, transforms[m.transform])
	if m.merge {
		text += ", merge: endpoints"
	}
	return text
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, rand: rand.New(rand.NewPCG(seed, seed)), dir: t.TempDir(), fresh: map[string]contents{}}
	for i := range 6 {
		p := &place{name: fmt.Sprint("p", i), first: 10 * i, objects: map[string]int{}}
		m.places = append(m.places, p)
		for range 6 {
			m.edit(p)
		}
		m.publish(p)
		if i >= 4 {
			p.at = down(t)
			configured(t, m.dir+"/above-"+p.name, "name: all, address: 'fs://../"+p.name+"', guard: off")
			p.relay = startAt(t, m.dir+"/above-"+p.name, p.at)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		m.config = append(m.config, m.source(name))
	}
	m.address = down(t)
	configured(t, m.dir, m.texts()...)
	m.begin()
	for _, mode := range []adsc.Mode{adsc.SotW, adsc.Delta} {
		m.clients = append(m.clients, startClient(t, m.address, mode, m.check))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, strings.Join(m.history, "\n"))
		}
	})
	return m
}

func (m *model) run(n int) {
	m.converge()
	for steps := 0; steps < n && !m.t.Failed(); {
		switch k := m.rand.IntN(100); {
		case k < 55:
			steps++
			m.reload()
		case k < 65:
			m.toggle()
		case k < 70:
			m.restart()
		case k < 73:
			m.refused()
		default:
			m.change()
		}
	}
	for _, p := range m.places {
		if p.away {
			m.bring(p)
		}
	}
	m.converge()
}

func (m *model) logStep(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

func (m *model) pick(n int) bool { return m.rand.IntN(n) == 0 }

func (m *model) source(name string) modelled {
	return modelled{
		name: name, place: m.places[m.rand.IntN(len(m.places))], transform: max(0, m.rand.IntN(7)-3),
		precedence: m.rand.IntN(2), merge: m.pick(4), delay: m.rand.IntN(3),
	}
}

func (m *model) texts() (texts []string) {
	for _, s := range m.config {
		texts = append(texts, s.String())
	}
	return texts
}

// edit changes an object of a place, or adds or removes one, but never the last. So far only the oracle sees it.
func (m *model) edit(p *place) {
	m.edits++
	kind := []string{"ServiceEntry", "ServiceEntry", "Gateway"}[m.rand.IntN(3)]
	key := fmt.Sprintf("%s %s/%s", kind, []string{"one", "two"}[m.rand.IntN(2)], []string{"a", "b", "c", "d"}[m.rand.IntN(4)])
	if _, exists := p.objects[key]; exists && len(p.objects) > 1 && m.pick(2) {
		delete(p.objects, key)
	} else {
		p.objects[key] = p.first + 1 + m.rand.IntN(3)
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(p.objects)) {
		kind, name, _ := strings.Cut(key, " ")
		namespace, name, _ := strings.Cut(name, "/")
		if kind == "ServiceEntry" {
			fmt.Fprintf(&text, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: %s}\n"+
				"spec: {hosts: [%s.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, location: MESH_INTERNAL, "+
				"endpoints: [{address: 10.0.0.%d}]}\n---\n",
				name, namespace, name, p.objects[key])
		} else {
			fmt.Fprintf(&text, "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: %s}\n"+
				"spec: {servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['*']}]}\n---\n", name, namespace, p.objects[key])
		}
	}
	p.text = text.String()
	write(m.t, m.dir+"/mirror/"+p.name+"/f.yaml", p.text)
}

// publish lets the relay see the edits.
func (m *model) publish(p *place) { write(m.t, m.dir+"/"+p.name+"/f.yaml", p.text) }

// oracle returns the content that a fresh start with the configuration serves if all places are reachable.
func (m *model) oracle() contents { return m.servedWithout(nil) }

// servedWithout is the oracle for the configuration without its sources of some places.
func (m *model) servedWithout(places []*place) contents {
	var texts []string
	for _, s := range m.config {
		if !slices.Contains(places, s.place) {
			texts = append(texts, s.at("fs://../mirror/"+s.place.name))
		}
	}
	if len(texts) == 0 {
		return contents{}
	}
	id := fmt.Sprint(m.edits, texts)
	if served, ok := m.fresh[id]; ok {
		return served
	}
	dir := m.dir + "/oracle"
	require.NoError(m.t, os.RemoveAll(dir))
	configured(m.t, dir, texts...)
	rig := start(m.t, dir)
	await(m.t, rig.view.Synced)
	served := viewed(rig)
	rig.stop()
	m.fresh[id] = served
	return served
}

// partial returns the contents that may be served until all places can be read: those without each set of unreachable
// places.
func (m *model) partial() (allowed []contents) {
	var away []*place
	for _, s := range m.config {
		if s.place.away && !slices.Contains(away, s.place) {
			away = append(away, s.place)
		}
	}
	for set := 1; set < 1<<len(away); set++ {
		var missing []*place
		for i, p := range away {
			if set&(1<<i) != 0 {
				missing = append(missing, p)
			}
		}
		allowed = append(allowed, m.servedWithout(missing))
	}
	return allowed
}

// viewed returns the view of a relay, as clients see it.
func viewed(r *rig) contents { return contentsOf(r.view.Snapshot()) }

func contentsOf(snapshot memstore.Snapshot) contents {
	content := contents{}
	for res := range snapshot.All() {
		content[keyOf(res)] = contentOf(res.Labels(), res.Body())
	}
	return content
}

// begin starts the relay, and has its view looked at.
func (m *model) begin() {
	m.relay = startAt(m.t, m.dir, m.address)
	m.checked.Store(0)
	rig := m.relay
	rig.onChange(m.t, func() {
		if rig.view.Synced() {
			snapshot := rig.view.Snapshot()
			m.check("view", contentsOf(snapshot))
			m.checked.Store(uint64(snapshot.Revision()))
		}
	})
}

// onChange calls look now and after each change of the view, until the relay is stopped.
func (r *rig) onChange(t *testing.T, look func()) {
	t.Helper()
	ended := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			changed := r.view.Changed()
			look()
			select {
			case <-ended:
				return
			case <-changed:
			}
		}
	})
	stop := r.stop
	r.stop = sync.OnceFunc(func() {
		close(ended)
		looking.Wait()
		stop()
	})
	t.Cleanup(r.stop)
}

// reload changes the configuration in one to three respects.
func (m *model) reload() {
	next := slices.Clone(m.config)
	pick := func() *modelled { return &next[m.rand.IntN(len(next))] }
	unused := func() string {
		for {
			name := string(rune('a' + m.rand.IntN(8)))
			if !slices.ContainsFunc(next, func(s modelled) bool { return s.name == name }) {
				return name
			}
		}
	}
	for range 1 + m.rand.IntN(3) {
		switch m.rand.IntN(10) {
		case 0: // rename
			pick().name = unused()
		case 1: // trade places
			a, b := pick(), pick()
			a.place, b.place = b.place, a.place
		case 2: // trade names
			a, b := pick(), pick()
			a.name, b.name = b.name, a.name
		case 3: // take over
			if len(next) > 1 {
				i, j := m.rand.IntN(len(next)), m.rand.IntN(len(next))
				if i != j {
					next[i].place, next[i].transform = next[j].place, next[j].transform
					next = slices.Delete(next, j, j+1)
				}
			}
		case 4: // split: one source has the objects that the other excludes
			if a := pick(); len(next) < 5 {
				a.transform = 2
				b := *a
				b.name, b.transform, b.place = unused(), 0, m.places[m.rand.IntN(len(m.places))]
				next = append(next, b)
			}
		case 5:
			pick().transform = m.rand.IntN(len(transforms))
		case 6:
			s := pick()
			s.precedence, s.merge, s.delay = m.rand.IntN(2), m.pick(3), m.rand.IntN(3)
		case 7:
			m.rand.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		case 8:
			if len(next) < 5 {
				next = append(next, m.source(unused()))
			}
		case 9:
			if len(next) > 1 {
				i := m.rand.IntN(len(next))
				next = slices.Delete(next, i, i+1)
			}
		}
	}
	merging := func(sources []modelled) bool {
		return slices.ContainsFunc(sources, func(s modelled) bool { return s.merge })
	}
	loose := merging(m.config) || merging(next)
	m.config = next
	m.logStep("reload: %s", strings.Join(m.texts(), "\n        "))
	m.narrow(m.oracle(), loose)
	m.admit(m.partial())
	m.relay.reload(m.t, m.texts()...)
	require.Equal(m.t, http.StatusOK, m.relay.ready(m.t), "all is served")
	m.converge()
}

// refused requests a configuration with an error at its end. It changes nothing.
func (m *model) refused() {
	next := append(m.texts()[1:], m.source("z").String(), []string{
		"name: z, address: 'fs://./p0'",
		"name: y, address: 'fs://./p0', rescanInterval: never",
		"name: y, address: 'fs://./p0', transform: {labels: {add: {'': c}}}",
	}[m.rand.IntN(3)])
	m.logStep("a reload that is refused: %s", next[len(next)-1])
	configured(m.t, m.dir, next...)
	_, err := m.relay.reloader.Reload(m.t.Context(), "the test")
	require.Error(m.t, err)
	configured(m.t, m.dir, m.texts()...)
	m.converge()
}

// toggle takes a place out of reach, or brings it back.
func (m *model) toggle() {
	place := m.places[m.rand.IntN(len(m.places))]
	if place.away {
		m.bring(place)
		m.converge()
		return
	}
	m.logStep("%s is out of reach", place.name)
	place.away = true
	if place.relay != nil {
		place.relay.stop()
		return
	}
	require.NoError(m.t, os.Rename(m.dir+"/"+place.name, m.dir+"/"+place.name+".away"))
}

func (m *model) bring(p *place) {
	m.logStep("%s is back", p.name)
	p.away = false
	if p.relay != nil {
		p.relay = startAt(m.t, m.dir+"/above-"+p.name, p.at)
		return
	}
	require.NoError(m.t, os.Rename(m.dir+"/"+p.name+".away", m.dir+"/"+p.name))
}

// change edits a reachable place if all configured places were read: the model does not know unread content.
func (m *model) change() {
	p := m.places[m.rand.IntN(len(m.places))]
	if p.away || !m.settled() {
		return
	}
	m.edit(p)
	m.logStep("%s is changed: %v", p.name, p.objects)
	m.narrow(m.oracle(), slices.ContainsFunc(m.config, func(s modelled) bool { return s.merge }))
	if readers := slices.DeleteFunc(slices.Clone(m.config), func(s modelled) bool { return s.place != p }); len(readers) > 1 {
		m.blur() // each reads for itself
	}
	m.publish(p)
	m.converge()
}

// restart restarts the relay, if all that is configured is read: it then serves all of it at once, whatever is out of reach.
func (m *model) restart() {
	if !m.settled() {
		return
	}
	m.logStep("restart")
	m.relay.stop()
	m.begin()
	m.relay.awaitReady(m.t)
	m.converge()
}

// settled reports whether all that is configured is read, since the last reload: the view switches to other sources
// after the reload has returned.
func (m *model) settled() bool {
	m.relay.sources.mu.Lock()
	switched := m.relay.sources.retiredRemoved
	m.relay.sources.mu.Unlock()
	if switched != nil {
		select {
		case <-switched:
		default:
			return false
		}
	}
	statuses := m.relay.view.Sources()
	if len(statuses) != len(m.config) {
		return false
	}
	for _, s := range statuses {
		if !s.Synced || s.Retired || !slices.ContainsFunc(m.config, func(c modelled) bool { return c.name == s.Name }) {
			return false
		}
	}
	return true
}

// converge waits until all readers see the content of the oracle, if all configured places can be read and were not
// read before. From then on it promises no less.
func (m *model) converge() {
	m.t.Helper()
	want := m.oracle()
	settled := false
	eventually(m.t, func() error {
		if settled = m.settled(); !settled {
			for _, s := range m.config {
				if s.place.away {
					return nil // perhaps for ever
				}
			}
			return fmt.Errorf("not settled: %+v", m.relay.view.Sources())
		}
		if err := m.upToDate(); err != nil {
			return err
		}
		for _, c := range m.clients {
			if now := c.now(); !maps.Equal(now, want) {
				return fmt.Errorf("after %d steps %s sees\n%v, want\n%v\nsources %+v", len(m.history), c.name, now, want, m.relay.view.Sources())
			}
		}
		return nil
	})
	if settled {
		m.exactly(want)
	}
}

// upToDate returns an error if a reader may still see a state from before the sources settled. The content of a reader
// does not show that: if it is the same before and after a reload, a state in between may be on its way.
func (m *model) upToDate() error {
	for _, alive := range []func(context.Context) error{m.relay.view.Alive, m.relay.catalogs.mcp.Alive} {
		if err := alive(m.t.Context()); err != nil { // or its work that began earlier has ended
			return err
		}
	}
	view := m.relay.view.Snapshot()
	if checked := m.checked.Load(); checked != uint64(view.Revision()) {
		return fmt.Errorf("revision %d of the view is checked, not %d", checked, view.Revision())
	}
	streams := m.relay.engine.Clients()
	if len(streams) != len(m.clients) {
		return fmt.Errorf("%d clients are connected", len(streams))
	}
	for _, stream := range streams {
		if len(stream.Types) != len(typeURLs) {
			return fmt.Errorf("stream %d has %d types", stream.StreamID, len(stream.Types))
		}
		for _, status := range stream.Types {
			if !status.Synced || !isCollectionOf(view, status.Collection) {
				return fmt.Errorf("stream %d lacks the newest version of %s", stream.StreamID, status.TypeURL)
			}
		}
	}
	return nil
}

// isCollectionOf reports whether a collection has the content of a view.
func isCollectionOf(view memstore.Snapshot, collection *xds.Collection) bool {
	kind := resource.Kind(collection.TypeURL()[strings.LastIndex(collection.TypeURL(), "/")+1:])
	want, versions := map[string]string{}, map[string]string{}
	for object := range view.List(kind, "") {
		want[object.Key().FullName()] = object.Version()
	}
	for entry := range collection.All() {
		versions[entry.Name] = entry.Version
	}
	return maps.Equal(versions, want)
}

// promise has the content that no reader may miss.
type promise struct {
	mu   sync.Mutex
	keys map[string]map[string]bool // to the allowed contents; nil for any content
}

// narrow limits the promise to keys that a state also has. A key with another content there may have either, or any if
// loose.
func (p *promise) narrow(next contents, loose bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, allowed := range p.keys {
		content, exists := next[key]
		switch {
		case !exists:
			delete(p.keys, key)
		case loose && strings.HasPrefix(key, "ServiceEntry"):
			p.keys[key] = nil
		case allowed != nil:
			p.keys[key] = maps.Clone(allowed)
			p.keys[key][content] = true
		}
	}
}

// admit also allows the contents of other states for promised keys.
func (p *promise) admit(states []contents) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, state := range states {
		for key, content := range state {
			if allowed := p.keys[key]; allowed != nil {
				allowed[content] = true
			}
		}
	}
}

// blur allows any content for keys that may differ.
func (p *promise) blur() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, allowed := range p.keys {
		if len(allowed) > 1 {
			p.keys[key] = nil
		}
	}
}

// exactly promises a state.
func (p *promise) exactly(state contents) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = map[string]map[string]bool{}
	for key, content := range state {
		p.keys[key] = map[string]bool{content: true}
	}
}

// check compares the content that a reader sees with the promise.
func (m *model) check(reader string, now contents) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, allowed := range m.keys {
		content, exists := now[key]
		switch {
		case !exists:
			m.t.Errorf("%s misses %s", reader, key)
		case allowed != nil && !allowed[content]:
			m.t.Errorf("%s sees %s as %q, which may be %q", reader, key, content, slices.Collect(maps.Keys(allowed)))
		}
	}
}

// contentOf returns the text by which clients compare objects.
func contentOf(labels map[string]string, body []byte) string {
	return fmt.Sprintf("%v %q", labels, body)
}
