package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// The options of tributary in the torture. Objects that a wipe removed stay for tortureHold, long enough to register
// all of them again.
const (
	tortureWait = 5 * time.Second
	tortureHold = 20 * time.Second

	tortureStored = 500 * time.Millisecond
)

// TestConsulTorture subjects a real Consul, tributary and the network between them to all usual faults, while instances
// and rules come and go. An oracle of its own checks that tributary loses only objects that Consul lost, and that all
// converges afterwards. A round is one fault. E2E_SEED repeats a run, E2E_ROUNDS is the number of rounds, E2E_LIVES
// selects one of the four worlds by servers and rights, such as 3-acl, and E2E_FAULTS selects faults by a part of their
// names, such as wiped.
func TestConsulTorture(t *testing.T) {
	if os.Getenv("E2E_NIGHTLY") == "" {
		t.Skip("takes 10 minutes; E2E_NIGHTLY=1 runs it")
	}
	seed := number("E2E_SEED", uint64(time.Now().UnixNano()))
	rounds := int(number("E2E_ROUNDS", 40))
	lives := strings.Fields(os.Getenv("E2E_LIVES"))
	for _, life := range []struct {
		name    string
		servers int
		acl     bool
	}{{"1-open", 1, false}, {"3-open", 3, false}, {"1-acl", 1, true}, {"3-acl", 3, true}} {
		if len(lives) > 0 && !slices.Contains(lives, life.name) {
			continue
		}
		t.Run(life.name, func(t *testing.T) {
			t.Logf("E2E_SEED=%d E2E_ROUNDS=%d E2E_LIVES=%s", seed, rounds, life.name)
			w := newTorture(t, life.servers, life.acl, rand.New(rand.NewPCG(seed, uint64(life.servers))))
			for round := range max(1, rounds/4) {
				w.round(round)
			}
			slices.Sort(w.recoveries)
			percentile := func(p int) time.Duration {
				return w.recoveries[(len(w.recoveries)-1)*p/100].Round(10 * time.Millisecond)
			}
			fmt.Printf("torture %s: %d rounds, %d looks, %d losses; convergence after recovery p50 %s, p90 %s, most %s; %v\n",
				life.name, len(w.recoveries), w.looks, len(w.losses), percentile(50), percentile(90), percentile(100), w.counts)
			require.Empty(t, w.losses)
			require.LessOrEqual(t, percentile(90), 10*time.Second+tortureWait)
		})
	}
}

func number(name string, standard uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return standard
}

// torture is one world.
type torture struct {
	t         *testing.T
	rnd       *rand.Rand
	consul    []*fixture.Consul
	acl       bool
	tokenFile string
	config    string // of tributary
	proxy     *liar
	tributary *fixture.Tributary
	http      *http.Client

	oracle
	recoveries []time.Duration
	counts     map[string]int // of faults
	suspects   bool           // Consul was wiped in this round
}

const (
	tortureManagement = "5c5d1f6e-0f0b-4d0a-9a6c-5d1f6e0f0b4d"
	tortureSecret     = "9e7c1a52-3b1f-4a63-8c56-1a523b1f4a63"
)

func newTorture(t *testing.T, servers int, acl bool, rnd *rand.Rand) *torture {
	o := fixture.ConsulOptions{}
	if acl {
		o.ManagementToken = tortureManagement
	}
	w := &torture{
		t: t, rnd: rnd, acl: acl, consul: fixture.StartConsulServers(t, servers, o), counts: map[string]int{},
		http: &http.Client{Timeout: 3 * time.Second},
	}
	w.oracle = newOracle()
	w.proxy = newLiar(t, w.consul, rnd)
	w.tokenFile = filepath.Join(t.TempDir(), "token")
	w.grant("read")
	for range 20 {
		w.change()
	}
	services := fixture.ConfigSource{Name: "services", Address: "consul://" + w.proxy.addr}.
		With("wait", tortureWait.String()).With("resync", "30s").With("grace", "2s").With("resetHold", tortureHold.String())
	rules := fixture.ConfigSource{Name: "rules", Address: "consul-kv://" + w.proxy.addr + "/mesh"}.
		With("wait", tortureWait.String()).With("resetHold", tortureHold.String())
	// The deletion guard would hold back the losses of the sources, and the intended changes of the next minute.
	services, rules = services.With("guard", "off"), rules.With("guard", "off")
	if acl {
		services, rules = services.With("tokenFile", w.tokenFile), rules.With("tokenFile", w.tokenFile)
	}
	w.tributary = fixture.StartTributary(t, services, rules)
	w.config = filepath.Join(filepath.Dir(w.tributary.State), "tributary.yaml")
	w.converge(time.Minute)
	w.calm()
	return w
}

// round is one fault with changes before, in and after it.
func (w *torture) round(n int) {
	w.suspects = false
	before := len(w.losses)
	w.begin()
	watch := w.look(w.t, w.tributary)
	fault, name := w.pick()
	w.counts[name]++
	if w.rnd.IntN(2) == 0 {
		w.change()
	}
	heal := fault()
	if w.rnd.IntN(2) == 0 && !w.suspects { // objects deleted in a Consul that lost its data stay for tortureHold
		w.tryToChange()
	}
	time.Sleep(time.Duration(w.rnd.IntN(4000)) * time.Millisecond) // For as long as the fault lasts.
	heal()
	w.proxy.behave()
	w.recover()
	for _, write := range w.later { // before anything else is done to the same things
		w.must(write)
	}
	w.later = nil
	if !w.suspects {
		w.change()
	}
	took := time.Since(w.converge(2 * time.Minute))
	w.recoveries = append(w.recoveries, took)
	watch()
	w.calm()
	w.t.Logf("round %d: %s: converged after %s", n, name, took.Round(10*time.Millisecond))
	for _, l := range w.losses[before:] {
		w.t.Errorf("round %d (%s): %s", n, name, l)
	}
	require.LessOrEqual(w.t, len(w.losses), 20, "enough is lost")
}

// pick chooses a fault: a function that causes it and returns the function that ends it.
func (w *torture) pick() (fault func() (heal func()), name string) {
	type faultCase struct {
		name  string
		cause func() func()
	}
	nothing := func() {}
	faults := []faultCase{
		{"one server killed", func() func() { c := w.any(); c.Kill(); return func() { c.Restart(w.t) } }},
		{"one server stopped and continued", func() func() {
			c := w.any()
			c.Signal(w.t, syscall.SIGSTOP)
			return func() { c.Signal(w.t, syscall.SIGCONT) }
		}},
		{"all servers killed", func() func() {
			for _, c := range w.consul {
				c.Kill()
			}
			return func() {
				for _, c := range w.consul {
					c.Restart(w.t)
				}
			}
		}},
		{"all servers but one killed", func() func() {
			survivor := w.rnd.IntN(len(w.consul))
			for i, c := range w.consul {
				if i != survivor || len(w.consul) == 1 {
					c.Kill()
				}
			}
			return func() {
				for i, c := range w.consul {
					if i != survivor || len(w.consul) == 1 {
						c.Restart(w.t)
					}
				}
			}
		}},
		{"tributary killed", func() func() { w.tributary.Kill(); return func() { w.tributary.Restart(w.t) } }},
		{"tributary killed, Consul too", func() func() {
			w.tributary.Kill()
			c := w.any()
			c.Kill()
			return func() {
				w.tributary.Restart(w.t)
				time.Sleep(time.Duration(w.rnd.IntN(1500)) * time.Millisecond) // So that it meets a Consul that is not up.
				c.Restart(w.t)
			}
		}},
		{"tributary reloads", func() func() { w.reload(); return nothing }},
		{"wiped", func() func() { w.wipe(nothing); return nothing }},
		{"wiped, and tributary restarted", func() func() {
			w.wipe(func() { w.tributary.Kill(); w.tributary.Restart(w.t) })
			return nothing
		}},
		{"wiped while tributary was away", func() func() {
			w.tributary.Kill()
			w.wipe(func() { w.tributary.Restart(w.t) })
			return nothing
		}},
		{"wiped, and reloaded", func() func() { w.wipe(w.reload); return nothing }},
	}
	var lying []faultCase
	for _, lie := range lies {
		lying = append(lying, faultCase{"proxy: " + lie, func() func() { w.proxy.lie(lie); return nothing }})
		lying = append(lying, faultCase{"proxy: " + lie + ", and tributary restarted", func() func() {
			w.proxy.lie(lie)
			w.tributary.Kill()
			w.tributary.Restart(w.t)
			return nothing
		}})
	}
	if w.acl {
		faults = append(faults,
			faultCase{"token deleted", func() func() { w.revoke(); return func() { w.grant("read") } }},
			faultCase{"token limited", func() func() { w.grant("some"); return func() { w.grant("read") } }},
			faultCase{"token limited to nodes", func() func() { w.grant("nodes"); return func() { w.grant("read") } }},
			faultCase{"token limited to nodes, and tributary restarted", func() func() {
				w.grant("nodes")
				w.tributary.Kill()
				w.tributary.Restart(w.t)
				return func() { w.grant("read") }
			}},
			faultCase{"token limited to nodes, and reloaded", func() func() {
				w.grant("nodes")
				w.reload()
				return func() { w.grant("read") }
			}},
			faultCase{"token without rights", func() func() { w.grant("none"); return func() { w.grant("read") } }},
			faultCase{"token file emptied", func() func() {
				w.write("")
				return func() { w.write(tortureSecret) }
			}},
			faultCase{"token file emptied, and tributary restarted", func() func() {
				w.write("")
				w.tributary.Kill()
				w.tributary.Restart(w.t)
				return func() { w.write(tortureSecret) }
			}},
		)
	}
	if only := os.Getenv("E2E_FAULTS"); only != "" {
		faults = slices.DeleteFunc(append(faults, lying...), func(f faultCase) bool { return !strings.Contains(f.name, only) })
	} else if w.rnd.IntN(3) == 0 {
		faults = lying
	}
	f := faults[w.rnd.IntN(len(faults))]
	return f.cause, f.name
}

// patiently is a client of some server, which may not answer at all.
func (w *torture) patiently() *api.Client {
	o := &api.Config{Address: w.any().HTTP, HttpClient: w.http}
	if w.acl {
		o.Token = tortureManagement
	}
	c, err := api.NewClient(o)
	require.NoError(w.t, err)
	return c
}

func (w *torture) any() *fixture.Consul { return w.consul[w.rnd.IntN(len(w.consul))] }

// reload changes one setting of both sources that has no effect on served objects.
func (w *torture) reload() {
	text, err := os.ReadFile(w.config)
	require.NoError(w.t, err)
	waits := []string{"5s", "5001ms"}
	if strings.Contains(string(text), waits[1]) {
		slices.Reverse(waits)
	}
	require.NoError(w.t, os.WriteFile(w.config, []byte(strings.ReplaceAll(string(text), "wait: "+waits[0], "wait: "+waits[1])), 0o600))
	w.tributary.Signal(w.t, syscall.SIGHUP)
}

// wipe removes the data of Consul. Then its agents register their services again, and an operator applies the rules
// again, one after the other; halfway another fault happens.
func (w *torture) wipe(halfway func()) {
	w.suspects = true
	for _, c := range w.consul {
		c.Kill()
		require.NoError(w.t, os.RemoveAll(c.Data))
	}
	for _, c := range w.consul {
		c.Restart(w.t)
	}
	w.recover()
	w.grant("read")
	writes := w.everything()
	w.rnd.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	for i, write := range writes {
		if i == len(writes)/2 {
			time.Sleep(time.Duration(w.rnd.IntN(3000)) * time.Millisecond) // So that a part of it is all that there is.
			halfway()
		}
		w.must(write)
		time.Sleep(time.Duration(w.rnd.IntN(50)) * time.Millisecond)
	}
}

// recover waits until every server serves.
func (w *torture) recover() {
	for _, c := range w.consul {
		c.AwaitLeader(w.t)
		c.WaitFor(w.t, 30*time.Second, func() error {
			_, _, err := c.API().KV().Get("mesh", &api.QueryOptions{RequireConsistent: true})
			return err
		})
	}
}

// must has a write done by whatever server does it.
func (w *torture) must(write func(*api.Client) error) {
	fixture.WaitFor(w.t, 30*time.Second, func() error { return write(w.patiently()) })
}

// change changes something, for certain.
func (w *torture) change() {
	write, confirm := w.next(w.rnd)
	w.must(write)
	confirm()
}

// tryToChange changes an object although Consul may not work. The outcome is unknown until the write is repeated.
func (w *torture) tryToChange() {
	write, confirm := w.next(w.rnd)
	confirm() // From now on the word is checked at the end of the round only.
	limit := time.Now().Add(2 * time.Second)
	for time.Now().Before(limit) && write(w.patiently()) != nil {
		time.Sleep(100 * time.Millisecond)
	}
	w.later = append(w.later, write)
}

// converge waits until tributary serves exactly the words of the oracle. It returns the time at which Consul had them.
func (w *torture) converge(timeout time.Duration) (consistentAt time.Time) {
	consistentAt = time.Now()
	w.tributary.WaitFor(w.t, timeout, func() error {
		got, err := served(w.t.Context(), w.tributary)
		if err != nil {
			return err
		}
		err = w.compare(got)
		if err != nil && w.correct() {
			consistentAt = time.Now()
		}
		return err
	})
	return consistentAt
}

// correct writes the words of the oracle to Consul, and reports whether Consul differed: a stopped server continues
// earlier requests after their clients gave up, although another server has done these and more since.
func (w *torture) correct() bool {
	held, err := w.held(w.consul[0].API())
	if err != nil {
		return false
	}
	differs := w.compare(held)
	if differs == nil {
		return false
	}
	w.t.Logf("Consul itself differs from the oracle's writes, and gets them again: %v", differs)
	w.counts["late writes"]++
	for word := range held {
		if remove := w.stray(word); remove != nil {
			w.must(remove)
		}
	}
	for _, write := range w.everything() {
		w.must(write)
	}
	return true
}

// calm waits until no source has a suspicion, so that each round begins in the same state.
func (w *torture) calm() {
	w.tributary.WaitFor(w.t, tortureHold+time.Minute, func() error {
		for _, name := range []string{"services", "rules"} {
			if s := source(w.t, w.tributary, name); s.State != "healthy" {
				return fmt.Errorf("%s is %v", name, s)
			}
		}
		return nil
	})
	time.Sleep(tortureStored) // Served objects are on disk a moment later, and kill -9 loses that moment.
}

// grant gives tributary's token rights: "read" all of them, "some", those on some "nodes", or "none".
func (w *torture) grant(rights string) {
	if !w.acl {
		return
	}
	rules := map[string]string{
		"read": `node_prefix "" { policy = "read" } service_prefix "" { policy = "read" } key_prefix "mesh/" { policy = "read" }`,
		"some": `node_prefix "" { policy = "read" } service_prefix "s1" { policy = "read" } key_prefix "mesh/r1" { policy = "read" }`,
		"nodes": `node "node-0" { policy = "read" } node "node-1" { policy = "read" } service_prefix "" { policy = "read" } key_prefix ` +
			`"mesh/" { policy = "read" }`,
		"none": `key_prefix "other/" { policy = "read" }`,
	}[rights]
	w.must(func(c *api.Client) error {
		policy := &api.ACLPolicy{Name: "torture", Rules: rules}
		if old, _, err := c.ACL().PolicyReadByName("torture", nil); err == nil && old != nil {
			policy.ID = old.ID
			if _, _, err := c.ACL().PolicyUpdate(policy, nil); err != nil {
				return err
			}
		} else if _, _, err := c.ACL().PolicyCreate(policy, nil); err != nil {
			return err
		}
		_, _, err := c.ACL().TokenCreate(&api.ACLToken{SecretID: tortureSecret, Policies: []*api.ACLTokenPolicyLink{{Name: "torture"}}}, nil)
		if err != nil && strings.Contains(err.Error(), "already in use") {
			return nil
		}
		return err
	})
	w.write(tortureSecret)
}

// revoke deletes the token.
func (w *torture) revoke() {
	w.must(func(c *api.Client) error {
		token, _, err := c.ACL().TokenReadSelf(&api.QueryOptions{Token: tortureSecret})
		if err != nil {
			if strings.Contains(err.Error(), "ACL not found") {
				return nil
			}
			return err
		}
		_, err = c.ACL().TokenDelete(token.AccessorID, nil)
		return err
	})
}

func (w *torture) write(token string) {
	next := w.tokenFile + ".next"
	require.NoError(w.t, os.WriteFile(next, []byte(token), 0o600))
	require.NoError(w.t, os.Rename(next, w.tokenFile))
}
