package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
// connections and sessions end. The oracle is the list of living providers. FUZZ_ROUNDS and FUZZ_SEED are the number of
// rounds and the seed.
func TestDubboFuzz(t *testing.T) {
	if os.Getenv("E2E_NIGHTLY") == "" {
		t.Skip("takes a quarter of an hour; E2E_NIGHTLY=1 runs it")
	}
	number := func(key string, standard uint64) uint64 {
		n, err := strconv.ParseUint(os.Getenv(key), 10, 64)
		if err != nil {
			return standard
		}
		return n
	}
	rounds, seed := int(number("FUZZ_ROUNDS", 100)), number("FUZZ_SEED", rand.Uint64())
	t.Logf("FUZZ_ROUNDS=%d FUZZ_SEED=%d", rounds, seed)
	w := &fuzzWorld{
		rand: rand.New(rand.NewPCG(seed, 0)), zookeeper: fixture.StartZooKeeper(t), rules: map[fuzzRule]string{},
		listed: map[*fuzzProvider]time.Time{},
	}
	w.ours, w.theirs = fixture.StartGate(t, w.zookeeper.Addr), fixture.StartGate(t, w.zookeeper.Addr)
	w.admin = w.zookeeper.Client(t)
	w.tributary = fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "zookeeper://" + w.ours.Addr + "?session=2000"}.
		With("hold", fuzzHold.String()).With("guard", "off").With("askProviders", false).With("delay", "100ms"))
	w.born = time.Now()
	for range 6 {
		w.add(t)
	}
	w.converge(t, "at first")
	for round := range rounds {
		w.log = nil
		before := w.alive()
		lost := w.watch(t, before)
		for range 1 + w.rand.IntN(4) {
			w.step(t)
		}
		w.converge(t, fmt.Sprintf("round %d: %s", round, strings.Join(w.log, ", ")))
		require.NoError(t, lost(), "round %d: %s", round, strings.Join(w.log, ", "))
	}
}

// fuzzWorld has the living providers and their addresses.
type fuzzWorld struct {
	rand         *rand.Rand
	zookeeper    *fixture.ZooKeeper
	ours, theirs *fixture.Gate
	admin        *fixture.ZooKeeperClient
	tributary    *fixture.Tributary
	born         time.Time // when tributary was started last

	providers []*fuzzProvider
	rules     map[fuzzRule]string // weights that configurators set
	counter   int
	log       []string // of the round

	mu     sync.Mutex
	listed map[*fuzzProvider]time.Time // when ZooKeeper listed it last
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
	forgotten bool // tributary was killed in this round, and no process of it had served it for fuzzWritten
}

func (w *fuzzWorld) pick(choices ...string) string { return choices[w.rand.IntN(len(choices))] }

// add starts a provider.
func (w *fuzzWorld) add(t *testing.T) {
	w.counter++
	level := w.rand.IntN(3)
	p := &fuzzProvider{
		player: fixture.PlayDubbo(t, w.theirs.Addr, fuzzSession), iface: "com.acme.S" + strconv.Itoa(w.rand.IntN(4)), group: w.pick("", "g1"),
		version: w.pick("", "1.0.0", "2.0.0"), app: "app" + strconv.Itoa(w.counter%5),
		address: fmt.Sprintf("10.9.%d.%d:20880", w.counter/250, w.counter%250+1),
		weight:  1 + w.rand.IntN(300), byInterface: level != 1, byInstance: level != 0, golang: w.rand.IntN(2) == 0, touched: true,
	}
	w.log = append(w.log, "add "+p.address)
	w.register(t, p)
	w.providers = append(w.providers, p)
}

// register writes the nodes of a provider, at both levels if it uses both, and then removes its earlier nodes.
func (w *fuzzWorld) register(t *testing.T, p *fuzzProvider) {
	t.Helper()
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
		write := func() { w.admin.Put(t, root+p.app+"/"+revision, doc) }
		if w.rand.IntN(2) == 0 { // Java writes it after the instance, too
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

func (w *fuzzWorld) step(t *testing.T) {
	t.Helper()
	n := len(w.providers)
	switch action := w.rand.IntN(20); {
	case action < 5 || n < 3:
		w.add(t)
	case action < 8:
		p := w.take()
		w.log = append(w.log, "stop "+p.address)
		p.player.Stop()
	case action < 10:
		p := w.take()
		w.log = append(w.log, "kill "+p.address)
		p.player.Kill()
	case action < 13:
		p := w.providers[w.rand.IntN(n)]
		p.weight = 1 + w.rand.IntN(300)
		w.log = append(w.log, "change "+p.address)
		w.register(t, p)
	case action < 14:
		w.rule(t)
	case action < 15:
		w.log = append(w.log, "garbage")
		w.admin.Put(t, "/dubbo/com.acme.S0/providers/"+w.pick("%zz", "dubbo", url.QueryEscape("dubbo://h:x/y"),
			url.QueryEscape("empty://0.0.0.0/x?category=providers")), "x")
		w.admin.Put(t, "/services/"+w.pick("app0", "spring")+"/"+w.pick("x", "10.0.0.1:1"),
			w.pick("127.0.0.1", `{"name":`, `{"payload":{"metadata":{"dubbo.endpoints":"no"}}}`))
	case action < 16:
		w.log = append(w.log, "tributary is killed")
		w.tributary.Kill()
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
		time.Sleep(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
		w.born = time.Now()
		w.tributary.Restart(t)
		w.tributary.AwaitAlive(t)
	case action < 17:
		w.log = append(w.log, "ZooKeeper is killed")
		w.zookeeper.Kill()
		time.Sleep(time.Duration(w.rand.IntN(3000)) * time.Millisecond)
		w.zookeeper.Restart(t)
		w.zookeeper.AwaitServing(t)
	case action < 19:
		w.log = append(w.log, "our connection is cut")
		for range 1 + w.rand.IntN(3) {
			w.ours.Shut()
			time.Sleep(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
			w.ours.Open()
			time.Sleep(time.Duration(w.rand.IntN(500)) * time.Millisecond)
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
	i := w.rand.IntN(len(w.providers))
	p := w.providers[i]
	w.providers = slices.Delete(w.providers, i, i+1)
	p.touched = true
	return p
}

// rule sets a configurator, or removes it.
func (w *fuzzWorld) rule(t *testing.T) {
	t.Helper()
	target := fuzzRule{"com.acme.S" + strconv.Itoa(w.rand.IntN(4)), w.pick("", "", "g1"), w.pick("", "", "1.0.0", "2.0.0")}
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
		w.admin.Delete(t, "/dubbo/"+target.iface+"/configurators/"+url.QueryEscape(path(old)))
		delete(w.rules, target)
		return
	}
	w.rules[target] = strconv.Itoa(1 + w.rand.IntN(99))
	w.admin.Configurator(t, target.iface, path(w.rules[target]))
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

// converge waits until exactly the living providers are served.
func (w *fuzzWorld) converge(t *testing.T, step string) {
	t.Helper()
	want := w.expected()
	fixture.WaitFor(t, fuzzHold+30*time.Second, func() error {
		got, err := w.served(t.Context())
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s: served\n%s, want\n%s", step, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return err
	})
	for _, p := range w.providers {
		if p.served.IsZero() {
			p.served = time.Now()
		}
	}
}

// alive returns the living providers, and marks each as untouched.
func (w *fuzzWorld) alive() []*fuzzProvider {
	for _, p := range w.providers {
		p.touched, p.forgotten = false, false
	}
	return slices.Clone(w.providers)
}

// look notes the last time that ZooKeeper listed a provider. While ZooKeeper does not answer, the time stays.
func (w *fuzzWorld) look(p *fuzzProvider) {
	begun := time.Now()
	if listed, err := p.player.Listed(w.admin); err != nil || !listed {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed[p] = begun
}

// lately reports whether ZooKeeper listed a provider less than a hold ago.
func (w *fuzzWorld) lately(p *fuzzProvider) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.listed[p]) < fuzzHold
}

// watch polls the served endpoints until the result is called, which returns the endpoints that were missing although
// their provider lived all the time.
func (w *fuzzWorld) watch(t *testing.T, before []*fuzzProvider) (lost func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	missing := map[string]string{} // by address: the served endpoints at the first poll without it
	var watching sync.WaitGroup
	each := func(look func()) {
		watching.Go(func() {
			for ctx.Err() == nil {
				look()
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	each(func() {
		for _, p := range before {
			w.look(p)
		}
	})
	expired := map[*fuzzProvider]bool{}
	each(func() {
		// A tributary that starts does not answer, which proves no loss.
		if got, err := w.served(ctx); err == nil {
			text := "\n" + strings.Join(got, "\n")
			for _, p := range before {
				isServed, lately := strings.Contains(text, "\n"+p.host()+" "+p.address+" "), w.lately(p)
				// A provider without a new registration at the end of the hold is gone rightly, and is served a moment after its
				// registration.
				expired[p] = !isServed && (expired[p] || !lately)
				if lately && !isServed && !expired[p] {
					if missing[p.address] == "" {
						missing[p.address] = time.Now().UTC().Format(time.StampMilli) + text
					}
				}
			}
		}
	})
	return func() error {
		cancel()
		watching.Wait()
		for _, p := range before {
			if missing[p.address] == "" || p.touched {
				continue
			}
			// A tributary that was killed serves its saved state until it has read ZooKeeper, and it writes 200 ms after a
			// change. Killed again and again it may live for less.
			if p.forgotten {
				t.Logf("%s was not served at once after tributary was killed: no process had lived for more than %v since it served that",
					p.address, p.lived.Round(time.Millisecond))
				continue
			}
			return fmt.Errorf("%s was lost for a moment, or longer; one process of tributary had lived for %v since it served that, if it was "+
				"killed; it was registered at %s, levels %t %t; served at %s",
				p.address, p.lived, p.host(), p.byInterface, p.byInstance, missing[p.address])
		}
		return nil
	}
}
