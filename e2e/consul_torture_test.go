package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
// converges afterwards. A round is one fault. E2E_LIVES selects some of the four worlds by servers and rights, such as
// 3-acl.
func TestConsulTorture(t *testing.T) {
	nightly(t, "takes 10 minutes")
	lives := strings.Fields(os.Getenv("E2E_LIVES"))
	for _, servers := range []int{1, 3} {
		for _, acl := range []bool{false, true} {
			name := fmt.Sprint(servers, map[bool]string{false: "-open", true: "-acl"}[acl])
			if len(lives) > 0 && !slices.Contains(lives, name) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				w := newTorture(t, servers, acl)
				w.over(t, w, 2*time.Minute, 100*time.Millisecond)
				slices.Sort(w.recoveries)
				percentile := func(p int) time.Duration { return w.recoveries[(len(w.recoveries)-1)*p/100] }
				t.Logf("convergence after recovery p50 %v, p90 %v, most %v; %d late writes", percentile(50), percentile(90), percentile(100), w.lateWrites)
				require.LessOrEqual(t, percentile(90), 10*time.Second+tortureWait)
			})
		}
	}
}

// torture is one world.
type torture struct {
	t *testing.T
	*storm
	consul    []*fixture.Consul
	acl       bool
	tokenFile string
	proxy     *liar
	tributary *fixture.Tributary
	http      *http.Client

	oracle
	consistent time.Time       // when Consul had the words of the oracle
	recoveries []time.Duration // from then on
	lateWrites int
	suspects   bool // Consul was wiped in this round
}

const (
	tortureManagement = "5c5d1f6e-0f0b-4d0a-9a6c-5d1f6e0f0b4d"
	tortureSecret     = "9e7c1a52-3b1f-4a63-8c56-1a523b1f4a63"
)

func newTorture(t *testing.T, servers int, acl bool) *torture {
	o := fixture.ConsulOptions{}
	if acl {
		o.ManagementToken = tortureManagement
	}
	w := &torture{
		t: t, storm: newStorm(t, 10), acl: acl, consul: fixture.StartConsulServers(t, servers, o), oracle: newOracle(),
		http: &http.Client{Timeout: 3 * time.Second},
	}
	w.proxy = newLiar(t, w.consul, w.Rand)
	w.tokenFile = filepath.Join(t.TempDir(), "token")
	w.grant("read")
	for range 20 {
		w.change()
	}
	// The deletion guard would hold back the losses of the sources, and the intended changes of the next minute.
	source := func(name, address string) fixture.ConfigSource {
		s := fixture.ConfigSource{Name: name, Address: address}.
			With("wait", tortureWait.String()).With("resetHold", tortureHold.String()).With("guard", "off")
		if acl {
			s = s.With("tokenFile", w.tokenFile)
		}
		return s
	}
	w.tributary = fixture.StartTributary(t, source("services", "consul://"+w.proxy.addr).With("resync", "30s").With("grace", "2s"),
		source("rules", "consul-kv://"+w.proxy.addr+"/mesh"))
	return w
}

// Deed implements peer: a fault with changes before, in and after it.
func (w *torture) Deed() string {
	faults := w.faults()
	name := draw(w.storm, faults)
	if w.IntN(2) == 0 {
		w.change()
	}
	heal := faults[name]()
	if w.IntN(2) == 0 && !w.suspects { // objects deleted in a Consul that lost its data stay for tortureHold
		w.tryToChange()
	}
	w.sometime(4 * time.Second) // For as long as the fault lasts.
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
	w.consistent = time.Now()
	return name
}

// faults cause faults, and return functions that end them.
func (w *torture) faults() map[string]func() (heal func()) {
	nothing := func() {}
	once := func(do func()) func() func() { return func() func() { do(); return nothing } }
	crash := func() { w.tributary.Crash(w.t) }
	aftermath := func() { // of a fault that tributary may meet in several ways
		n := w.IntN(3)
		w.t.Log([]string{"nothing else", "tributary restarts", "tributary reloads"}[n])
		[]func(){nothing, crash, w.reload}[n]()
	}
	kill := func(servers []*fixture.Consul) func() {
		for _, c := range servers {
			c.Kill()
		}
		return func() {
			for _, c := range servers {
				c.Restart(w.t)
			}
		}
	}
	faults := map[string]func() func(){
		"one server killed": func() func() { return kill([]*fixture.Consul{w.any()}) },
		"one server stopped and continued": func() func() {
			c := w.any()
			c.Signal(w.t, syscall.SIGSTOP)
			return func() { c.Signal(w.t, syscall.SIGCONT) }
		},
		"all servers killed": func() func() { return kill(w.consul) },
		"all servers but one killed": func() func() {
			survivor := w.any()
			return kill(slices.DeleteFunc(slices.Clone(w.consul), func(c *fixture.Consul) bool { return c == survivor && len(w.consul) > 1 }))
		},
		"tributary killed": func() func() { w.tributary.Kill(); return func() { w.tributary.Restart(w.t) } },
		"tributary killed, Consul too": func() func() {
			w.tributary.Kill()
			restart := kill([]*fixture.Consul{w.any()})
			return func() {
				w.tributary.Restart(w.t)
				w.sometime(1500 * time.Millisecond) // So that it meets a Consul that is not up.
				restart()
			}
		},
		"tributary reloads": once(w.reload),
		"wiped":             once(func() { w.wipe(aftermath) }),
		"wiped while tributary was away": once(func() {
			w.tributary.Kill()
			w.wipe(func() { w.tributary.Restart(w.t) })
		}),
	}
	for _, lie := range lies {
		faults["proxy: "+lie] = once(func() { w.proxy.lie(lie); []func(){nothing, crash}[w.IntN(2)]() })
	}
	if w.acl {
		for name, take := range map[string]func(){
			"token deleted": w.revoke, "token limited": func() { w.grant("some") }, "token limited to nodes": func() { w.grant("nodes") },
			"token without rights": func() { w.grant("none") }, "token file emptied": func() { w.write("") },
		} {
			faults[name] = func() func() { take(); aftermath(); return func() { w.grant("read") } }
		}
	}
	return faults
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

func (w *torture) any() *fixture.Consul { return w.consul[w.IntN(len(w.consul))] }

// reload changes one setting of both sources that has no effect on served objects.
func (w *torture) reload() {
	text, err := os.ReadFile(w.tributary.Config)
	require.NoError(w.t, err)
	waits := []string{"5s", "5001ms"}
	if strings.Contains(string(text), waits[1]) {
		slices.Reverse(waits)
	}
	require.NoError(w.t, os.WriteFile(w.tributary.Config, []byte(strings.ReplaceAll(string(text), "wait: "+waits[0], "wait: "+waits[1])), 0o600))
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
	w.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	for i, write := range writes {
		if i == len(writes)/2 {
			w.sometime(3 * time.Second) // So that a part of it is all that there is.
			halfway()
		}
		w.must(write)
		w.sometime(50 * time.Millisecond)
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
	write, confirm := w.next(w.Rand)
	w.must(write)
	confirm()
}

// tryToChange changes an object although Consul may not work. The outcome is unknown until the write is repeated.
func (w *torture) tryToChange() {
	write, confirm := w.next(w.Rand)
	confirm() // From now on the word is checked at the end of the round only.
	limit := time.Now().Add(2 * time.Second)
	for time.Now().Before(limit) && write(w.patiently()) != nil {
		time.Sleep(100 * time.Millisecond)
	}
	w.later = append(w.later, write)
}

// Truth implements peer: tributary serves exactly the words of the oracle.
func (w *torture) Truth() error {
	got, err := served(w.t.Context(), w.tributary)
	if err != nil {
		return err
	}
	if err = w.compare(got); err != nil && w.correct() {
		w.consistent = time.Now()
	}
	return err
}

// Lost implements peer.
func (w *torture) Lost(ctx context.Context) error {
	got, err := served(ctx, w.tributary)
	if err != nil {
		return fixture.ErrNoAnswer // It is being restarted.
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for word := range w.steady {
		if !got[word] {
			return fmt.Errorf("lost: %s", word)
		}
	}
	return nil
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
	w.lateWrites++
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

// Rest waits until no source has a suspicion, so that each round begins in the same state.
func (w *torture) Rest() {
	if !w.consistent.IsZero() {
		w.recoveries = append(w.recoveries, time.Since(w.consistent).Round(10*time.Millisecond))
	}
	w.tributary.WaitFor(w.t, tortureHold+time.Minute, func() error {
		for _, name := range []string{"services", "rules"} {
			if s := source(w.t, w.tributary, name); s.State != "healthy" {
				return fmt.Errorf("%s is %v", name, s)
			}
		}
		return nil
	})
	time.Sleep(tortureStored) // Served objects are on disk a moment later, and kill -9 loses that moment.
	w.suspects = false
	w.begin()
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
