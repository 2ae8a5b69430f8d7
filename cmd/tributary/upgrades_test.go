package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// upgradeSeeds is the environment variable that says how many random histories of upgrades are run, and upgradeSeed the first.
const (
	upgradeSeeds = "TRIBUTARY_TEST_UPGRADES"
	upgradeSeed  = "TRIBUTARY_TEST_UPGRADE_SEED"
)

func fromEnvironment(t *testing.T, name string, usual uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return usual
	}
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err)
	return n
}

// Random histories of upgrades by right and wrong programs, while sources are pending, slow or broken, somebody reloads or releases, and
// either process is killed at any step. At every moment a client is served and loses nothing, nobody is refused, and at most one process
// writes the state directory. After each upgrade one process is left, and the client sees a changed file.
func TestUpgradeHistories(t *testing.T) {
	t.Parallel()
	first := fromEnvironment(t, upgradeSeed, 1)
	for seed := first; seed < first+fromEnvironment(t, upgradeSeeds, 4); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			newUpgradeHistory(t, seed).run(t)
		})
	}
}

// upgradeHistory is a server that is upgraded, its source behind a network that can be disturbed, and a client.
type upgradeHistory struct {
	*upgrading
	*rand.Rand
	network *network
	client  *steadyClient
	pending bool // a source was never read
	killed  bool // the process before was killed in this upgrade
	port    int
}

func newUpgradeHistory(t *testing.T, seed uint64) *upgradeHistory {
	remote := t.TempDir()
	write(t, remote+"/remote.yaml", entry("remote", 1))
	up := serving(t, served(remote)...)
	h := &upgradeHistory{
		Rand:    rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // it is to be the same each time
		network: newNetwork(t, up.xds), client: &steadyClient{t: t}, port: 1,
	}
	h.upgrading = upgradable(t, "{name: up, address: 'xds://"+h.network.listener.Addr().String()+"'}")
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.client.run(ctx, h.xds) })
	running.Go(func() { h.oneWrites(ctx, t) })
	running.Go(func() { h.listens(ctx, t) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return h
}

// run is the history.
func (h *upgradeHistory) run(t *testing.T) {
	h.awaitServed(t, "counter", "kept", "remote")
	h.client.keeps("counter", "kept", "remote")
	for range 4 {
		if h.IntN(2) == 0 {
			how := h.IntN(len(networkStates))
			t.Log("the network is", networkStates[how])
			h.network.set(how)
		}
		if !h.pending && h.IntN(2) == 0 {
			t.Log("a source is replaced by one that is never read")
			h.pend(t)
			h.pending = true
		}
		h.upgrade(t)
		h.restart(t)
		h.rest(t)
	}
	h.network.set(0)
	h.rest(t)
	h.client.end(t)
}

// upgrade has some program take over, while somebody disturbs that.
func (h *upgradeHistory) upgrade(t *testing.T) {
	programs := []string{
		"", "", "", slow, "none", "old", "end-prepared", "end-ready", "end-serving", "hang-prepared",
		"orphan-prepared", "orphan-ready", "orphan-serving",
	}
	program := programs[h.IntN(len(programs))]
	h.install(t, program)
	h.killed = strings.HasPrefix(program, orphan)
	disturbance := []string{"nothing", "reload", "release", "kill the old one", "kill the new one"}[h.IntN(5)]
	switch {
	case program == "hang-prepared":
		disturbance = "a change"
	case h.killed:
		disturbance = "nothing" // one is to be left
	}
	moment := time.Duration(h.IntN(600)) * time.Millisecond
	t.Logf("upgrade to %q; after %s: %s", program, moment, disturbance)
	if disturbance == "release" {
		h.hold(t)
	}

	before := h.owner()
	//nolint:gosec // this very test binary
	asked := exec.CommandContext(t.Context(), os.Args[0], "upgrade", "--admin", h.admin, "--timeout", "3s")
	asked.Env = append(os.Environ(), asProgram+"=1")
	require.NoError(t, asked.Start())
	time.Sleep(moment)
	released := false
	switch disturbance {
	case "a change":
		h.follows(t)
	case "reload":
		got := command(t, "reload", "--admin", h.admin)
		require.Contains(t, []int{0, 1, 75}, got.code, got.stderr) // 1: the process has ended
	case "release":
		got := command(t, "guard", "release", "rules", "--admin", h.admin)
		require.Contains(t, []int{0, 1, 75}, got.code, got.stderr)
		released = got.code == 0
	case "kill the old one", "kill the new one":
		h.kill(t, before, disturbance == "kill the old one" && slices.Contains([]string{"", slow}, program))
	}
	_ = asked.Wait() // the one that answers may be killed
	if disturbance == "release" {
		h.released(t, released && !h.killed) // a process that is killed may not have written it
	}
}

// kill kills one of the two processes of an upgrade, if there are two, and the other one can go on.
func (h *upgradeHistory) kill(t *testing.T, old int, theOld bool) {
	next := programs(t, h.dir, old)
	if len(next) == 0 {
		return
	}
	for _, pid := range next {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		eventually(t, stopped(pid))
	}
	for _, pid := range next {
		switch {
		case theOld && len(next) == 1: // the other one is no helper of the test, which may be about to end
			h.killed = syscall.Kill(old, syscall.SIGKILL) == nil
		case !theOld && h.owner() == old:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// hold has the guard hold a loss of the source of files.
func (h *upgradeHistory) hold(t *testing.T) {
	const many = 30
	for i := range many {
		write(t, fmt.Sprintf("%s/rules/entry-%d.yaml", h.dir, i), entry(fmt.Sprint("entry-", i), 80))
	}
	h.awaitServed(t, "entry-0", fmt.Sprint("entry-", many-1))
	for i := range many {
		require.NoError(t, os.Remove(fmt.Sprintf("%s/rules/entry-%d.yaml", h.dir, i)))
	}
	eventually(t, func() error {
		return contains(command(t, "guard", "list", "--admin", h.admin).stdout, "objects and 0 endpoints\n")
	})
}

// released checks that what was released stays so, and releases what was not.
func (h *upgradeHistory) released(t *testing.T, was bool) {
	h.restart(t)
	eventually(t, func() error {
		if !was {
			_ = command(t, "guard", "release", "rules", "--admin", h.admin) // it may be refused for now
		}
		if h.client.has("entry-0") {
			return h.client.failedOr(errors.New("the client has what was released"))
		}
		return nil
	})
}

// restart removes the source that is never read, if the process before was killed before it had said what it serves: the one that goes on
// starts as after a crash, when nothing is served until all sources are read.
func (h *upgradeHistory) restart(t *testing.T) {
	if !h.killed || !h.pending {
		return
	}
	h.alone(t)
	ready := false
	eventually(t, func() error {
		status, body := h.page(t, "/-/ready")
		if ready = status == http.StatusOK; ready {
			return nil
		}
		return contains(body, "source never ")
	})
	if ready {
		return
	}
	t.Log("it starts as after a crash")
	h.pending = false
	h.client.keeps("counter", "remote")
	h.configure(t, "{name: rules, address: 'fs://./rules'}", "{name: gone, address: 'fs://./gone'}")
	status, body := h.post(t, "/-/reload")
	require.Equal(t, http.StatusOK, status, body)
	h.awaitServed(t, "counter", "kept", "remote")
	h.client.keeps("counter", "kept", "remote")
}

// rest waits until one process is left, and the client sees a change.
func (h *upgradeHistory) rest(t *testing.T) {
	h.follows(t)
	h.alone(t)
	h.follows(t)
	h.awaitServed(t, "counter", "kept", "remote")
}

// follows changes a file, and waits until the client sees it.
func (h *upgradeHistory) follows(t *testing.T) {
	h.port++
	name := fmt.Sprintf("counter-%d", h.port)
	text := strings.ReplaceAll(entry("counter", 80), "counter.example", name+".example")
	write(t, h.dir+"/rules/counter.yaml", text)
	eventually(t, func() error { return h.client.failedOr(contains(h.client.text("counter"), name)) })
}

// awaitServed waits until the client has the objects.
func (h *upgradeHistory) awaitServed(t *testing.T, names ...string) {
	eventually(t, func() error {
		for _, name := range names {
			if !h.client.has(name) {
				return h.client.failedOr(errors.New("the client has no " + name))
			}
		}
		return nil
	})
}

// listens checks until ctx ends that who connects is not refused.
func (h *upgradeHistory) listens(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.xds)
		if err == nil {
			_ = conn.Close()
		} else if ctx.Err() == nil {
			t.Errorf("a client is refused: %v", err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// oneWrites checks until ctx ends that at most one process has files of the state directory open for writing, besides the lock.
func (h *upgradeHistory) oneWrites(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		all := programs(t, h.dir, 0)
		before := map[int][]string{}
		for _, pid := range all {
			before[pid] = h.written(pid)
		}
		writers := map[string]string{} // by the address of the stack, which is also that of a child that has not become another program yet
		for _, pid := range all {
			begins := stack(pid)
			for _, file := range h.written(pid) {
				program := begins != "" && begins == stack(pid)    // it has not become another program meanwhile
				if program && slices.Contains(before[pid], file) { // open at both moments, so at all between them
					writers[begins] = fmt.Sprintf("process %d: %s", pid, file)
				}
			}
		}
		if len(writers) > 1 {
			t.Errorf("two processes write: %v", slices.Collect(maps.Values(writers)))
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// stack is where the stack of a process begins.
func stack(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, _ := strings.Cut(string(text), ") ")
	const startStack = 28 - 3 // proc_pid_stat(5)
	if all := strings.Fields(fields); len(all) > startStack && all[startStack] != "0" {
		return all[startStack]
	}
	return "" // it has ended
}

// written are the files of the state directory that a process has open for writing.
func (h *upgradeHistory) written(pid int) (files []string) {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // it may have ended
	for _, fd := range fds {
		file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		name, ours := strings.CutPrefix(file, h.dir+"/state/")
		if !ours || name == "lock" {
			continue
		}
		info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd.Name()))
		_, flags, _ := strings.Cut(string(info), "flags:")
		mode, err := strconv.ParseUint(strings.TrimSpace(strings.SplitN(flags, "\n", 2)[0]), 8, 64)
		if err == nil && mode&syscall.O_ACCMODE != syscall.O_RDONLY {
			files = append(files, fd.Name()+" "+name)
		}
	}
	return files
}

// steadyClient is a client that connects again whenever its stream ends. It has what it was last sent.
type steadyClient struct {
	t *testing.T

	// Guarded by mu.
	mu    sync.Mutex
	held  map[string]string // the bytes of each object
	kept  []string          // the objects that it must not lose
	wrong error             // how it was not served as it should be
}

// unanswered is how long a client tries, of which the connections may be to a process that is killed.
const unanswered = 20 * time.Second

func (c *steadyClient) run(ctx context.Context, server string) {
	for last := time.Now(); ctx.Err() == nil; {
		answered, err := c.stream(ctx, server)
		switch {
		case answered:
			last = time.Now()
		case ctx.Err() != nil:
		case time.Since(last) >= unanswered:
			c.fail(fmt.Errorf("no stream is answered: %w", err))
			return
		}
	}
}

func (c *steadyClient) stream(ctx context.Context, server string) (answered bool, err error) {
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, err
	}
	defer conn.Close() //nolint:errcheck // nothing is written
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(unanswered, func() { cancel(errors.New("a stream waits for " + unanswered.String())) })
	defer late.Stop()
	const all = "networking.istio.io/v1/ServiceEntry"
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "steady"}, TypeUrl: all})
	}
	for err == nil {
		var r *discovery.DeltaDiscoveryResponse
		if r, err = s.Recv(); err != nil {
			break
		}
		late.Stop()
		c.take(r, !answered)
		answered = true
		err = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: all, ResponseNonce: r.GetNonce()})
	}
	return answered, errors.Join(err, context.Cause(ctx))
}

// take takes a response; the first one of a stream has all that there is.
func (c *steadyClient) take(r *discovery.DeltaDiscoveryResponse, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.held
	if whole {
		c.held = map[string]string{}
	}
	for _, one := range r.GetResources() {
		c.held[strings.TrimPrefix(one.GetName(), "shop/")] = string(bytes.ToValidUTF8(one.GetResource().GetValue(), nil))
	}
	for _, name := range r.GetRemovedResources() {
		delete(c.held, strings.TrimPrefix(name, "shop/"))
	}
	for _, name := range c.kept {
		if before[name] != "" && c.held[name] == "" && c.wrong == nil {
			c.wrong = errors.New("the client loses " + name)
		}
	}
}

// keeps says which objects it must not lose from now on.
func (c *steadyClient) keeps(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = names
}

func (c *steadyClient) text(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[name]
}

func (c *steadyClient) has(name string) bool { return c.text(name) != "" }

func (c *steadyClient) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong == nil {
		c.wrong = err
	}
}

// failedOr ends the test if the client was not served as it should be, and returns err otherwise.
func (c *steadyClient) failedOr(err error) error {
	c.end(c.t)
	return err
}

func (c *steadyClient) end(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NoError(t, c.wrong)
}

// network is a way to a server.
type network struct {
	listener net.Listener
	server   string
	state    atomic.Int32

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

// networkStates are how a network can be.
var networkStates = []string{"well", "slow", "cut"}

func newNetwork(t *testing.T, server string) *network {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{listener: lis, server: server}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server) //nolint:noctx // it is here
			if err != nil || networkStates[n.state.Load()] == "cut" {
				_ = client.Close()
				if far != nil {
					_ = far.Close()
				}
				continue
			}
			n.mu.Lock()
			n.conns = append(n.conns, client, far)
			n.mu.Unlock()
			running.Go(func() { n.carry(client, far) })
			running.Go(func() { n.carry(far, client) })
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		n.set(0)
		running.Wait()
	})
	return n
}

// carry carries what one end sends to the other.
func (n *network) carry(to, from net.Conn) {
	defer to.Close() //nolint:errcheck // it is enough that it is
	piece := make([]byte, 4<<10)
	for {
		read, err := from.Read(piece)
		if networkStates[n.state.Load()] == "slow" {
			time.Sleep(300 * time.Millisecond)
		}
		if _, failed := to.Write(piece[:read]); err != nil || failed != nil {
			if !errors.Is(err, io.EOF) {
				_ = from.Close()
			}
			return
		}
	}
}

// set changes the state of the network, and ends all connections.
func (n *network) set(state int) {
	n.state.Store(int32(state)) //nolint:gosec // there are few
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}
