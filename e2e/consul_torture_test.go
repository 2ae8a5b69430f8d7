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
				t.Logf("convergence after recovery p50 %v, p90 %v, most %v; %d late writes", percentile(50), percentile(90),
					percentile(100), w.lateWrites)
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
func (t *torture) Deed() string {
	faults := t.faults()
	name := draw(t.storm, faults)
	if t.IntN(2) == 0 {
		t.change()
	}
	heal := faults[name]()
	if t.IntN(2) == 0 && !t.suspects { // objects deleted in a Consul that lost its data stay for tortureHold
		t.tryToChange()
	}
	t.sometime(4 * time.Second) // For as long as the fault lasts.
	heal()
	t.proxy.behave()
	t.recover()
	for _, write := range t.later { // before anything else is done to the same things
		t.must(write)
	}
	t.later = nil
	if !t.suspects {
		t.change()
	}
	t.consistent = time.Now()
	return name
}

// faults cause faults, and return functions that end them.
func (t *torture) faults() map[string]func() (heal func()) {
	nothing := func() {}
	once := func(do func()) func() func() { return func() func() { do(); return nothing } }
	crash := func() { t.tributary.Crash(t.t) }
	aftermath := func() { // of a fault that tributary may meet in several ways
		n := t.IntN(3)
		t.t.Log([]string{"nothing else", "tributary restarts", "tributary reloads"}[n])
		[]func(){nothing, crash, t.reload}[n]()
	}
	kill := func(servers []*fixture.Consul) func() {
		for _, c := range servers {
			c.Kill()
		}
		return func() {
			for _, c := range servers {
				c.Restart(t.t)
			}
		}
	}
	faults := map[string]func() func(){
		"one server killed": func() func() { return kill([]*fixture.Consul{t.any()}) },
		"one server stopped and continued": func() func() {
			c := t.any()
			c.Signal(t.t, syscall.SIGSTOP)
			return func() { c.Signal(t.t, syscall.SIGCONT) }
		},
		"all servers killed": func() func() { return kill(t.consul) },
		"all servers but one killed": func() func() {
			survivor := t.any()
			return kill(slices.DeleteFunc(slices.Clone(t.consul), func(c *fixture.Consul) bool { return c == survivor && len(t.consul) > 1 }))
		},
		"tributary killed": func() func() { t.tributary.Kill(); return func() { t.tributary.Restart(t.t) } },
		"tributary killed, Consul too": func() func() {
			t.tributary.Kill()
			restart := kill([]*fixture.Consul{t.any()})
			return func() {
				t.tributary.Restart(t.t)
				t.sometime(1500 * time.Millisecond) // So that it meets a Consul that is not up.
				restart()
			}
		},
		"tributary reloads": once(t.reload),
		"wiped":             once(func() { t.wipe(aftermath) }),
		"wiped while tributary was away": once(func() {
			t.tributary.Kill()
			t.wipe(func() { t.tributary.Restart(t.t) })
		}),
	}
	for _, lie := range lies {
		faults["proxy: "+lie] = once(func() { t.proxy.lie(lie); []func(){nothing, crash}[t.IntN(2)]() })
	}
	if t.acl {
		for name, take := range map[string]func(){
			"token deleted": t.revoke, "token limited": func() { t.grant("some") }, "token limited to nodes": func() { t.grant("nodes") },
			"token without rights": func() { t.grant("none") }, "token file emptied": func() { t.write("") },
		} {
			faults[name] = func() func() { take(); aftermath(); return func() { t.grant("read") } }
		}
	}
	return faults
}

// patiently is a client of some server, which may not answer at all.
func (t *torture) patiently() *api.Client {
	o := &api.Config{Address: t.any().HTTP, HttpClient: t.http}
	if t.acl {
		o.Token = tortureManagement
	}
	c, err := api.NewClient(o)
	require.NoError(t.t, err)
	return c
}

func (t *torture) any() *fixture.Consul { return t.consul[t.IntN(len(t.consul))] }

// reload changes one setting of both sources that has no effect on served objects.
func (t *torture) reload() {
	text, err := os.ReadFile(t.tributary.Config)
	require.NoError(t.t, err)
	waits := []string{"5s", "5001ms"}
	if strings.Contains(string(text), waits[1]) {
		slices.Reverse(waits)
	}
	changed := strings.ReplaceAll(string(text), "wait: "+waits[0], "wait: "+waits[1])
	require.NoError(t.t, os.WriteFile(t.tributary.Config, []byte(changed), 0o600))
	t.tributary.Signal(t.t, syscall.SIGHUP)
}

// wipe removes the data of Consul. Then its agents register their services again, and an operator applies the rules
// again, one after the other; halfway another fault happens.
func (t *torture) wipe(halfway func()) {
	t.suspects = true
	for _, c := range t.consul {
		c.Kill()
		require.NoError(t.t, os.RemoveAll(c.Data))
	}
	for _, c := range t.consul {
		c.Restart(t.t)
	}
	t.recover()
	t.grant("read")
	writes := t.everything()
	t.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	for i, write := range writes {
		if i == len(writes)/2 {
			t.sometime(3 * time.Second) // So that a part of it is all that there is.
			halfway()
		}
		t.must(write)
		t.sometime(50 * time.Millisecond)
	}
}

// recover waits until every server serves.
func (t *torture) recover() {
	for _, c := range t.consul {
		c.AwaitLeader(t.t)
		c.WaitFor(t.t, 30*time.Second, func() error {
			_, _, err := c.API().KV().Get("mesh", &api.QueryOptions{RequireConsistent: true})
			return err
		})
	}
}

// must has a write done by whatever server does it.
func (t *torture) must(write func(*api.Client) error) {
	fixture.WaitFor(t.t, 30*time.Second, func() error { return write(t.patiently()) })
}

// change changes something, for certain.
func (t *torture) change() {
	write, confirm := t.next(t.Rand)
	t.must(write)
	confirm()
}

// tryToChange changes an object although Consul may not work. The outcome is unknown until the write is repeated.
func (t *torture) tryToChange() {
	write, confirm := t.next(t.Rand)
	confirm() // From now on the word is checked at the end of the round only.
	limit := time.Now().Add(2 * time.Second)
	for time.Now().Before(limit) && write(t.patiently()) != nil {
		time.Sleep(100 * time.Millisecond)
	}
	t.later = append(t.later, write)
}

// Truth implements peer: tributary serves exactly the words of the oracle.
func (t *torture) Truth() error {
	got, err := served(t.t.Context(), t.tributary)
	if err != nil {
		return err
	}
	if err = t.compare(got); err != nil && t.correct() {
		t.consistent = time.Now()
	}
	return err
}

// Lost implements peer.
func (t *torture) Lost(ctx context.Context) error {
	got, err := served(ctx, t.tributary)
	if err != nil {
		return fixture.ErrNoAnswer // It is being restarted.
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for word := range t.steady {
		if !got[word] {
			return fmt.Errorf("lost: %s", word)
		}
	}
	return nil
}

// correct writes the words of the oracle to Consul, and reports whether Consul differed: a stopped server continues
// earlier requests after their clients gave up, although another server has done these and more since.
func (t *torture) correct() bool {
	held, err := t.held(t.consul[0].API())
	if err != nil {
		return false
	}
	differs := t.compare(held)
	if differs == nil {
		return false
	}
	t.t.Logf("Consul itself differs from the oracle's writes, and gets them again: %v", differs)
	t.lateWrites++
	for word := range held {
		if remove := t.stray(word); remove != nil {
			t.must(remove)
		}
	}
	for _, write := range t.everything() {
		t.must(write)
	}
	return true
}

// Rest waits until no source has a suspicion, so that each round begins in the same state.
func (t *torture) Rest() {
	if !t.consistent.IsZero() {
		t.recoveries = append(t.recoveries, time.Since(t.consistent).Round(10*time.Millisecond))
	}
	t.tributary.WaitFor(t.t, tortureHold+time.Minute, func() error {
		for _, name := range []string{"services", "rules"} {
			if s := source(t.t, t.tributary, name); s.State != "healthy" {
				return fmt.Errorf("%s is %v", name, s)
			}
		}
		return nil
	})
	time.Sleep(tortureStored) // Served objects are on disk a moment later, and kill -9 loses that moment.
	t.suspects = false
	t.begin()
}

// grant gives tributary's token rights: "read" all of them, "some", those on some "nodes", or "none".
func (t *torture) grant(rights string) {
	if !t.acl {
		return
	}
	rules := map[string]string{
		"read": `node_prefix "" { policy = "read" } service_prefix "" { policy = "read" } key_prefix "mesh/" { policy = "read" }`,
		"some": `node_prefix "" { policy = "read" } service_prefix "s1" { policy = "read" } key_prefix "mesh/r1" { policy = "read" }`,
		"nodes": `node "node-0" { policy = "read" } node "node-1" { policy = "read" } service_prefix "" { policy = "read" } key_prefix ` +
			`"mesh/" { policy = "read" }`,
		"none": `key_prefix "other/" { policy = "read" }`,
	}[rights]
	t.must(func(c *api.Client) error {
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
	t.write(tortureSecret)
}

// revoke deletes the token.
func (t *torture) revoke() {
	t.must(func(c *api.Client) error {
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

func (t *torture) write(token string) {
	next := t.tokenFile + ".next"
	require.NoError(t.t, os.WriteFile(next, []byte(token), 0o600))
	require.NoError(t.t, os.Rename(next, t.tokenFile))
}
