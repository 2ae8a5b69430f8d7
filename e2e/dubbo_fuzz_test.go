package e2e

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tributary/e2e/fixture"
)

const (
	// longer than a provider needs to register again: a connection that it makes while ZooKeeper starts may hang for six
	// seconds
	fuzzHold    = 10 * time.Second
	fuzzSession = 2 * time.Second
	fuzzWritten = 2 * time.Second // the time until a change is on disk
)

// TestDubboFuzz lets providers of both levels come, change, go and crash, while tributary and ZooKeeper are killed, and
// connections and sessions end. The truth is the list of living providers.
func TestDubboFuzz(t *testing.T) {
	nightly(t, "takes a quarter of an hour")
	w := &fuzzWorld{t: t, storm: newStorm(t, 100), zookeeper: fixture.StartZooKeeper(t), rules: map[fuzzRule]string{}}
	w.ours, w.theirs = fixture.StartGate(t, w.zookeeper.Addr), fixture.StartGate(t, w.zookeeper.Addr)
	w.admin = w.zookeeper.Client(t)
	w.tributary = fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "zookeeper://" + w.ours.Addr + "?session=2000"}.
		With("hold", fuzzHold.String()).With("guard", "off").With("askProviders", false).With("delay", "100ms"))
	w.born = time.Now()
	for range 6 {
		w.add()
	}
	watching(t, 50*time.Millisecond, w.list)
	w.over(t, w, fuzzHold+30*time.Second, 50*time.Millisecond)
}

// fuzzWorld has the living providers and their addresses.
type fuzzWorld struct {
	t *testing.T
	*storm
	zookeeper    *fixture.ZooKeeper
	ours, theirs *fixture.Gate
	admin        *fixture.ZooKeeperClient
	tributary    *fixture.Tributary
	born         time.Time // when tributary was started last

	rules   map[fuzzRule]string // weights that configurators set
	counter int
	log     []string // of the round

	mu        sync.Mutex // of the providers, and of their states but for their registrations
	providers []*fuzzProvider
}

// fuzzRule identifies the services of a configurator: a group and version of an interface.
type fuzzRule struct{ iface, group, version string }

// fuzzProvider is a provider that lives.
type fuzzProvider struct {
	player                              *fixture.DubboPlayer
	iface, group, version, app, address string
	weight, started                     int
	byInterface, byInstance, golang     bool
	nodes                               []string
	served                              time.Time // when it was seen to be, after it registered last; zero if it was not
	touched                             bool      // in this round, so that it may be away for a moment
	// for how long one process of tributary that served it has lived since then, at most, when it was killed
	lived     time.Duration
	forgotten bool      // tributary was killed in this round, and no process of it had served it for fuzzWritten
	listed    time.Time // when ZooKeeper listed it last
	expired   bool      // it had no new registration at the end of the hold, and was not served since
}

func (w *fuzzWorld) pick(choices ...string) string { return choices[w.IntN(len(choices))] }

// add starts a provider.
func (w *fuzzWorld) add() {
	w.counter++
	level := w.IntN(3)
	p := &fuzzProvider{
		player: fixture.PlayDubbo(w.t, w.theirs.Addr, fuzzSession), iface: "com.acme.S" + strconv.Itoa(w.IntN(4)), group: w.pick("", "g1"),
		version: w.pick("", "1.0.0", "2.0.0"), app: "app" + strconv.Itoa(w.counter%5),
		address: fmt.Sprintf("10.9.%d.%d:20880", w.counter/250, w.counter%250+1),
		weight:  1 + w.IntN(300), byInterface: level != 1, byInstance: level != 0, golang: w.IntN(2) == 0, touched: true,
	}
	w.log = append(w.log, "add "+p.address)
	w.register(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.providers = append(w.providers, p)
}

// register writes the nodes of a provider, at both levels if it uses both, and then removes its earlier nodes.
func (w *fuzzWorld) register(p *fuzzProvider) {
	w.counter++
	p.started, p.served, p.lived = w.counter, time.Time{}, 0
	old := p.nodes
	p.nodes = nil
	params := [][2]string{{"application", p.app}, {"interface", p.iface}, {"side", "provider"}, {"methods", "add,greet"}}
	timestamp := strconv.Itoa(1_795_246_404_000 + p.started)
	if p.golang {
		params = append(params, [2]string{"release", "dubbo-golang-3.3.2"}, [2]string{"anyhost", "true"})
		timestamp = strconv.Itoa(1_795_246_404 + p.started)
	} else {
		params = append(params, [2]string{"release", "3.3.6"}, [2]string{"k.odd", w.pick("a+b", "50%25", "a/b?c#d", "x=y", "a b", "é中", "")})
	}
	if p.group != "" {
		params = append(params, [2]string{"group", p.group})
	}
	if p.version != "" {
		params = append(params, [2]string{"version", p.version})
	}
	params = append(params, [2]string{"timestamp", timestamp}, [2]string{"weight", strconv.Itoa(p.weight)})
	var pairs, fields []string
	for _, kv := range params {
		pairs, fields = append(pairs, kv[0]+"="+kv[1]), append(fields, fmt.Sprintf("%q:%q", kv[0], kv[1]))
	}
	if p.byInterface {
		node := "/dubbo/" + p.iface + "/providers/" + url.QueryEscape("dubbo://"+p.address+"/"+p.iface+"?"+strings.Join(pairs, "&"))
		p.player.Register(node, "127.0.0.1")
		p.nodes = append(p.nodes, node)
	}
	if p.byInstance {
		revision := fmt.Sprintf("r%d", w.counter)
		root := "/dubbo/metadata/"
		if p.golang {
			root = "/dubbo/"
		}
		doc := fmt.Sprintf(`{"app":%q,"revision":%q,"services":{"x":{"name":%q,"group":%q,"version":%q,"protocol":"dubbo","port":20880,`+
			`"path":%q,"params":{%s}}}}`,
			p.app, revision, p.iface, p.group, p.version, p.iface, strings.Join(fields, ","))
		write := func() { w.admin.Put(w.t, root+p.app+"/"+revision, doc) }
		if w.IntN(2) == 0 { // Java writes it after the instance, too
			write()
			write = func() {}
		}
		host, _, _ := strings.Cut(p.address, ":")
		node := "/services/" + p.app + "/" + p.address
		p.player.Register(node, fmt.Sprintf(`{"name":%q,"address":%q,"port":20880,`+
			`"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":%q,"timestamp":%q}}}`,
			p.app, host, revision, timestamp))
		p.nodes = append(p.nodes, node)
		write()
	}
	for _, node := range old {
		if !slices.Contains(p.nodes, node) {
			p.player.Unregister(node)
		}
	}
}

// Deed implements peer.
func (w *fuzzWorld) Deed() string {
	w.log = nil
	for range 1 + w.IntN(4) {
		w.step()
	}
	return strings.Join(w.log, ", ")
}

func (w *fuzzWorld) step() {
	n := len(w.providers)
	switch action := w.IntN(20); {
	case action < 5 || n < 3:
		w.add()
	case action < 8:
		p := w.take()
		w.log = append(w.log, "stop "+p.address)
		p.player.Stop()
	case action < 10:
		p := w.take()
		w.log = append(w.log, "kill "+p.address)
		p.player.Kill()
	case action < 13:
		p := w.providers[w.IntN(n)]
		p.weight = 1 + w.IntN(300)
		w.log = append(w.log, "change "+p.address)
		w.register(p)
	case action < 14:
		w.rule()
	case action < 15:
		w.log = append(w.log, "garbage")
		w.admin.Put(w.t, "/dubbo/com.acme.S0/providers/"+w.pick("%zz", "dubbo", url.QueryEscape("dubbo://h:x/y"),
			url.QueryEscape("empty://0.0.0.0/x?category=providers")), "x")
		w.admin.Put(w.t, "/services/"+w.pick("app0", "spring")+"/"+w.pick("x", "10.0.0.1:1"),
			w.pick("127.0.0.1", `{"name":`, `{"payload":{"metadata":{"dubbo.endpoints":"no"}}}`))
	case action < 16:
		w.log = append(w.log, "tributary is killed")
		w.tributary.Kill()
		w.mu.Lock()
		for _, p := range w.providers {
			servedSince := p.served // which may be long after it registered, while our connection is cut
			if w.born.After(servedSince) {
				servedSince = w.born
			}
			if !p.served.IsZero() {
				p.lived = max(p.lived, time.Since(servedSince))
			}
			p.forgotten = p.lived < fuzzWritten
		}
		w.mu.Unlock()
		w.sometime(time.Second)
		w.born = time.Now()
		w.tributary.Restart(w.t)
		w.tributary.AwaitAlive(w.t)
	case action < 17:
		w.log = append(w.log, "ZooKeeper is killed")
		w.zookeeper.Kill()
		w.sometime(3 * time.Second)
		w.zookeeper.Restart(w.t)
		w.zookeeper.AwaitServing(w.t)
	case action < 19:
		w.log = append(w.log, "our connection is cut")
		for range 1 + w.IntN(3) {
			w.ours.Shut()
			w.sometime(time.Second)
			w.ours.Open()
			w.sometime(time.Second / 2)
		}
	default:
		w.log = append(w.log, "all sessions expire")
		w.ours.Shut()
		time.Sleep(200 * time.Millisecond)
		w.theirs.Shut()
		time.Sleep(2 * fuzzSession)
		w.ours.Open()
		w.theirs.Open()
	}
}

// take takes a provider out of those that live.
func (w *fuzzWorld) take() *fuzzProvider {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.IntN(len(w.providers))
	p := w.providers[i]
	w.providers = slices.Delete(w.providers, i, i+1)
	return p
}

// rule sets a configurator, or removes it.
func (w *fuzzWorld) rule() {
	target := fuzzRule{"com.acme.S" + strconv.Itoa(w.IntN(4)), w.pick("", "", "g1"), w.pick("", "", "1.0.0", "2.0.0")}
	w.log = append(w.log, fmt.Sprintf("rule of %v", target))
	path := func(weight string) string {
		rule := "override://0.0.0.0/" + target.iface + "?category=configurators&weight=" + weight
		if target.group != "" {
			rule += "&group=" + target.group
		}
		if target.version != "" {
			rule += "&version=" + target.version
		}
		return rule
	}
	if old, exists := w.rules[target]; exists {
		w.admin.Delete(w.t, "/dubbo/"+target.iface+"/configurators/"+url.QueryEscape(path(old)))
		delete(w.rules, target)
		return
	}
	w.rules[target] = strconv.Itoa(1 + w.IntN(99))
	w.admin.Configurator(w.t, target.iface, path(w.rules[target]))
}

// host is where the oracle expects a provider.
func (p *fuzzProvider) host() string {
	h := strings.ToLower(p.iface)
	if p.group != "" {
		h += "-" + p.group
	}
	if p.version != "" {
		h += "-" + strings.ReplaceAll(p.version, ".", "-")
	}
	return h
}

func (w *fuzzWorld) expected() []string {
	lines := []string{}
	for _, p := range w.providers {
		weight := strconv.Itoa(p.weight)
		if r, exists := w.rules[fuzzRule{p.iface, p.group, p.version}]; exists {
			weight = r
		}
		lines = append(lines, p.host()+" "+p.address+" "+weight)
	}
	slices.Sort(lines)
	return lines
}

func (w *fuzzWorld) served(ctx context.Context) ([]string, error) {
	entries, err := servedEntries(ctx, w.tributary)
	if err != nil {
		return nil, err
	}
	lines := []string{}
	for _, se := range entries {
		for _, e := range se.Endpoints {
			for _, port := range e.Ports {
				lines = append(lines, fmt.Sprintf("%s %s:%d %d", se.Hosts[0], e.Address, port, e.Weight))
			}
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// Truth implements peer: exactly the living providers are served.
func (w *fuzzWorld) Truth() error {
	got, err := w.served(w.t.Context())
	if want := w.expected(); err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("served\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return err
}

// Rest implements peer.
func (w *fuzzWorld) Rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.providers {
		if p.served.IsZero() {
			p.served = time.Now()
		}
		p.touched, p.forgotten = false, false
	}
}

// list notes when ZooKeeper listed the providers last. While it does not answer, the times stay.
func (w *fuzzWorld) list(context.Context) error {
	w.mu.Lock()
	providers := slices.Clone(w.providers)
	w.mu.Unlock()
	for _, p := range providers {
		begun := time.Now()
		if listed, err := p.player.Listed(w.admin); err == nil && listed {
			w.mu.Lock()
			p.listed = begun
			w.mu.Unlock()
		}
	}
	return nil
}

// Lost names a provider that lives and was listed less than a hold ago, and is not served. A provider whose hold ended
// without a new registration is gone rightly, and is served a moment after its registration.
//
// A tributary that was killed serves its saved state until it has read ZooKeeper, and it writes 200 ms after a change.
// Killed again and again it may live for less.
func (w *fuzzWorld) Lost(ctx context.Context) error {
	got, err := w.served(ctx)
	if err != nil {
		return fixture.ErrNoAnswer // A tributary that starts does not answer, which proves no loss.
	}
	text := "\n" + strings.Join(got, "\n")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.providers {
		isServed, lately := strings.Contains(text, "\n"+p.host()+" "+p.address+" "), time.Since(p.listed) < fuzzHold
		p.expired = !isServed && (p.expired || !lately)
		if !isServed && !p.expired && !p.touched && !p.forgotten {
			return fmt.Errorf("%s is lost; one process of tributary had lived for %v since it served that, if it was killed; it was "+
				"registered at %s, levels %t %t; served%s", p.address, p.lived, p.host(), p.byInterface, p.byInstance, text)
		}
	}
	return nil
}
