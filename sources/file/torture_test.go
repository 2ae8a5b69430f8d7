package file

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

const (
	// tortured is the environment variable that makes the test binary a program of one file source, with its state on disk:
	// the root, the directory of the state, and the interval of rescans.
	tortured = "TRIBUTARY_TEST_TORTURED"
	// tortures and tortureSeed are the environment variables for the number of operations and the seed; `make soak` sets
	// the first.
	tortures    = "TRIBUTARY_TEST_TORTURES"
	tortureSeed = "TRIBUTARY_TEST_TORTURE_SEED"

	// askStatus is the request for the program's status.
	askStatus = "status"
)

// beTortured runs a source until it is killed. It answers each line that it reads with one line: the served objects, or
// the source's status.
func beTortured(args string) {
	part := strings.Split(args, "|")
	rescan, err := time.ParseDuration(part[2])
	must(err)
	state, err := lastgood.Open(part[1], nil)
	must(err)
	table := new(memstore.Table)
	supervisor := supervise(part[0], rescan, table, state.Source("rules"))
	go func() { must(supervisor.Run(context.Background())) }()
	encoder := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == askStatus {
			must(encoder.Encode(supervisor.Status()[0]))
		} else {
			must(encoder.Encode(servedBy(table)))
		}
	}
}

// supervise makes a supervisor of one impatient source without a guard.
func supervise(root string, rescan time.Duration, table *memstore.Table, memory *lastgood.Store) *sources.Supervisor {
	const quiet = 5 * time.Millisecond
	source, err := New("fs://"+root, Settings{
		QuietDelay: quiet, MaxDelay: 10 * quiet, EmptyGrace: 4 * quiet, RescanInterval: rescan,
		FollowLinks: true,
	})
	must(err)
	s := sources.NewSupervisor(sources.Options{})
	must(s.Reconfigure([]sources.Spec{{Name: "rules", Source: source, Table: table, LastGood: memory, Guard: guard.Settings{Off: true}}}))
	return s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// servedBy returns the objects of a table, by name.
func servedBy(table *memstore.Table) map[string]served {
	objects := make(map[string]served)
	for r := range table.Snapshot().List(resource.ServiceEntry, "default") {
		spec, err := r.Spec()
		must(err)
		objects[r.Key().Name] = served{spec.(interface{ GetHosts() []string }).GetHosts()[0], r.Origin().Group}
	}
	return objects
}

// torture is a tree, the program that serves it, and the random changes to it.
type torture struct {
	t      *testing.T
	random *rand.Rand
	base   string // has the root, far below, and the targets of links
	root   string
	rescan time.Duration
	n      int // operations
	log    []string

	cmd      *exec.Cmd
	requests io.WriteCloser
	out      *bufio.Reader
}

// TestTorture changes a tree at random and kills the program that serves it again and again. The served objects must be
// those that an independent oracle reads in the tree; only objects in unreadable places may stay as they were. After a
// repair they must equal the tree exactly, and the result of a start without state.
func TestTorture(t *testing.T) {
	t.Parallel()
	operations, seeds := 120, []uint64{1, 2, 3}
	if s := os.Getenv(tortures); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		operations, seeds = n, []uint64{rand.Uint64()}
	}
	if s := os.Getenv(tortureSeed); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			base, err := filepath.EvalSymlinks(t.TempDir())
			require.NoError(t, err)
			require.NoError(t, os.Chmod(filepath.Dir(base), 0o755)) //nolint:gosec // the program may be nobody
			x := &torture{
				t: t, random: rand.New(rand.NewPCG(seed, 0)), base: base, root: filepath.Join(base, "up/mid/rules"), //nolint:gosec // a test
				rescan: time.Hour,
			}
			if seed%3 == 0 {
				x.rescan = 150 * time.Millisecond
			}
			require.NoError(t, os.MkdirAll(x.root, 0o755))                       //nolint:gosec // as above
			require.NoError(t, os.MkdirAll(filepath.Join(base, "out"), 0o755))   //nolint:gosec // as above
			require.NoError(t, os.MkdirAll(filepath.Join(base, "state"), 0o777)) //nolint:gosec // as above
			require.NoError(t, os.Chmod(filepath.Join(base, "state"), 0o777))    //nolint:gosec // as above
			x.start()
			defer x.kill()
			for x.n < operations {
				for range 1 + x.random.IntN(8) {
					x.change()
				}
				x.check()
			}
			x.repair()
			x.checkAll()
		})
	}
}

// start starts the program, as user nobody if we are root, because permissions do not stop root.
func (t *torture) start() {
	program := "/proc/self/exe" // also for user nobody, without access to its path
	if _, err := os.Stat(program); err != nil {
		program = os.Args[0]
	}
	cmd := exec.Command(program) //nolint:noctx,gosec // it is killed; it is this one
	cmd.Env = append(os.Environ(), tortured+"="+strings.Join([]string{t.root, filepath.Join(t.base, "state"), t.rescan.String()}, "|"))
	cmd.Stderr = os.Stderr
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	requests, err := cmd.StdinPipe()
	require.NoError(t.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t.t, err)
	require.NoError(t.t, cmd.Start())
	t.cmd, t.requests, t.out = cmd, requests, bufio.NewReader(out)
}

func (t *torture) kill() {
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait() // it was killed
}

// served requests the served objects from the program.
func (t *torture) served() (objects map[string]served) {
	require.NoError(t.t, json.Unmarshal(t.enqueue(""), &objects))
	return objects
}

// programStatus is the program's status of the source.
type programStatus struct {
	State, Message string
	Synced         bool
}

// status asks the program for that.
func (t *torture) status() (st programStatus) {
	require.NoError(t.t, json.Unmarshal(t.enqueue(askStatus), &st))
	return st
}

// enqueue returns the program's answer.
func (t *torture) enqueue(request string) []byte {
	_, err := fmt.Fprintln(t.requests, request)
	require.NoError(t.t, err)
	line, err := t.out.ReadBytes('\n')
	require.NoError(t.t, err)
	return line
}

// check waits until all that can be read is served, and whatever else is served is there because something cannot be.
func (t *torture) check() {
	t.t.Helper()
	t.awaitTree(func(o *oracle, now map[string]served) error {
		want := o.winners()
		for name, w := range want {
			if now[name] != w && (len(o.unsound) == 0 || now[name] == served{}) {
				return fmt.Errorf("%s is %v, and should be %v", name, now[name], w)
			}
		}
		for name, s := range now {
			if _, ok := want[name]; !ok && len(o.unsound) == 0 {
				return fmt.Errorf("%s is %v, and should not be", name, s)
			}
		}
		return nil
	})
}

// checkAll waits until the served objects equal the tree exactly, and compares them with a start without state.
func (t *torture) checkAll() {
	t.t.Helper()
	exactly := func(o *oracle, now map[string]served) error {
		if len(o.unsound) > 0 {
			return fmt.Errorf("unsound: %v", o.unsound)
		}
		if want := o.winners(); !maps.Equal(want, now) {
			return fmt.Errorf("it is %v, and should be %v", now, want)
		}
		return nil
	}
	t.awaitTree(exactly)
	table := new(memstore.Table)
	fresh := supervise(t.root, time.Hour, table, nil)
	ctx, cancel := context.WithTimeout(t.t.Context(), 20*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- fresh.Run(ctx) }()
	fresh.AwaitRead(ctx)
	cancel()
	require.NoError(t.t, <-ended)
	require.Equal(t.t, t.served(), servedBy(table), "a start without state; seed of %s", t.t.Name())
}

func (t *torture) awaitTree(ok func(o *oracle, now map[string]served) error) {
	t.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := ok(ask(t.root), t.served())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			o := ask(t.root)
			require.Fail(t.t, "the served objects differ from the tree",
				"%s\n%v\nunsound: %v\nfiles: %v\nlast operations:\n%s\nthe tree:\n%s\nstatus: %s",
				t.t.Name(), err, o.unsound, slices.Sorted(maps.Keys(o.files)), strings.Join(t.log[max(0, len(t.log)-40):], "\n"),
				strings.Join(t.tree(), "\n"), t.enqueue(askStatus))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// tree lists the files and the targets of links.
func (t *torture) tree() (lines []string) {
	_ = filepath.WalkDir(t.base, func(p string, e fs.DirEntry, err error) error {
		to, _ := os.Readlink(p)
		lines = append(lines, fmt.Sprint(strings.TrimPrefix(p, t.base), " ", e, " ", to, " ", err))
		return nil
	})
	return lines
}
