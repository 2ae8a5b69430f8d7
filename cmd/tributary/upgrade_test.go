package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/process"
)

// asSuccessor is set in processes that are to disturb an upgrade: what they do, a dash, and the step in place of which they do it.
const asSuccessor = "TRIBUTARY_TEST_SUCCESSOR"

// What such a process does, besides to end.
const (
	hang   = "hang"   // it hangs
	orphan = "orphan" // it kills the process before
	slow   = "slow"   // it waits a while before each step
)

// failToTakeOver stands between the process before and one that takes over. In place of a step, which it does not tell, it kills one of
// the two.
func failToTakeOver(how string) {
	ctx := context.Background()
	p, err := process.PredecessorFromEnvironment()
	if err != nil {
		os.Exit(4)
	}
	how, at, _ := strings.Cut(how, "-")
	_ = os.Unsetenv(asSuccessor)
	next, err := process.StartSuccessor(os.Args[0], os.Args[1:], p.Sockets())
	for _, step := range []struct{ tell, await process.Step }{
		{process.Prepared, process.Restore}, {process.Ready, process.StateFree}, {process.Serving, process.Registered},
	} {
		if err = errors.Join(err, next.Await(ctx, step.tell)); err != nil {
			os.Exit(5)
		}
		switch {
		case how == slow:
			time.Sleep(500 * time.Millisecond)
		case step.tell != process.Step(at):
		case how == orphan:
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
			os.Exit(3) // so that the one that takes over sees it
		default:
			next.Kill()
			if how == hang {
				select {}
			}
			os.Exit(3)
		}
		err = p.Exchange(ctx, step.tell, step.await)
		err = errors.Join(err, next.Give(ctx, slices.Values(p.Content())), next.Tell(step.await))
	}
}

// upgrading is a server in a directory, whose program can be replaced.
type upgrading struct {
	server
	*child
	dir  string
	more []string // sources besides those of files
}

// upgradable starts a program that can be upgraded, with two sources of files, and more.
func upgradable(t *testing.T, more ...string) *upgrading {
	t.Helper()
	dir := t.TempDir()
	u := &upgrading{dir: dir, more: more}
	u.install(t, "")
	write(t, dir+"/rules/counter.yaml", entry("counter", 1))
	write(t, dir+"/gone/kept.yaml", entry("kept", 1))
	u.configure(t, "{name: rules, address: 'fs://./rules'}", "{name: gone, address: 'fs://./gone'}")
	u.child = launched(t, dir, dir+"/tributary", "serve", "-c", "tributary.yaml", "--log-format", "json")
	u.server = listening(t, &u.stderr)
	u.awaitReady(t)
	t.Cleanup(func() { // successors are no children of the test
		for all := programs(t, dir, 0); len(all) > 0; all = programs(t, dir, 0) { // one that is left holds what the first writes to
			for _, pid := range all {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return u
}

func (u *upgrading) configure(t *testing.T, sources ...string) {
	t.Helper()
	write(t, u.dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: ["+strings.Join(append(sources, u.more...), ", ")+"]\n")
}

// pend replaces a source by one that is never read.
func (u *upgrading) pend(t *testing.T) {
	t.Helper()
	u.configure(t, "{name: rules, address: 'fs://./rules'}", "{name: never, address: 'xds://127.0.0.1:1'}")
	status, body := u.post(t, "/-/reload")
	require.Equal(t, http.StatusOK, status, body)
}

// install puts a program in the place of the one that runs: this one, one that is none, an old one, or one that disturbs the upgrade.
func (u *upgrading) install(t *testing.T, how string) {
	t.Helper()
	path := u.dir + "/tributary"
	if how != "" {
		variable := asSuccessor + "=" + how
		switch how {
		case "none":
			variable = "false"
		case "old": // it knows another protocol
			variable = "-u TRIBUTARY_HANDOVER_2 TRIBUTARY_HANDOVER=xds"
		}
		write(t, path, "#!/bin/sh\nexec env "+variable+" "+os.Args[0]+" \"$@\"\n")
		require.NoError(t, os.Chmod(path, 0o755)) //nolint:gosec // it is a program
		return
	}
	program, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".new", program, 0o755)) //nolint:gosec // it is a program
	require.NoError(t, os.Rename(path+".new", path))
}

// owner is the process that has the state directory.
func (u *upgrading) owner() int {
	text, _ := os.ReadFile(u.dir + "/state/lock")
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// alone waits until there is one process, which has the state: another one may still hand its clients over.
func (u *upgrading) alone(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if all := programs(t, u.dir, 0); len(all) != 1 || all[0] != u.owner() {
			return fmt.Errorf("processes %v, the state is that of %d", all, u.owner())
		}
		return nil
	})
}

// follows changes an object, and waits until that is served.
func (u *upgrading) follows(t *testing.T, port int) {
	t.Helper()
	write(t, u.dir+"/rules/counter.yaml", entry("counter", port))
	eventually(t, func() error {
		got := command(t, "get", "se", "shop/counter", "-o", "yaml", "--server", u.xds)
		return contains(got.stdout+got.stderr, fmt.Sprintf("number: %d\n", port))
	})
}

// A successor that ends or hangs at any step changes nothing: the process before reads and writes on, and says what has happened.
func TestAFailedUpgradeLeavesWhatWasBefore(t *testing.T) {
	t.Parallel()
	u := upgradable(t)
	u.pend(t)
	before := u.owner()
	port := 1
	for _, how := range []string{"end-prepared", "hang-prepared", "end-ready", "hang-ready", "end-serving", "hang-serving"} {
		u.install(t, how)
		timeout, why := "2m", "it has ended"
		switch how {
		case "hang-prepared":
			timeout, why = "2s", "it was not ready within 2s"
		case "hang-ready", "hang-serving": // the pause has a limit of its own
			timeout, why = "2m", "it did not serve within 10."
		}
		got := command(t, "upgrade", "--timeout", timeout, "--admin", u.admin)
		require.Contains(t, got.stderr, why, how)
		require.Equal(t, 1, got.code, how)
		require.Contains(t, got.stderr, fmt.Sprintf("process %d goes on as before", before), how)
		port++
		u.follows(t, port)
		u.serves(t, "counter", "kept")
		require.Equal(t, before, u.owner(), how)
		got = command(t, "reload", "--admin", u.admin)
		require.Zero(t, got.code, got.stderr)
		got = command(t, "status", "--check", "--admin", u.admin)
		require.Equal(t, 3, got.code)
		require.Contains(t, got.stdout, "the upgrade at ")
		_, metrics := u.page(t, "/metrics")
		require.Contains(t, metrics, "tributary_upgrade_failed 1\n")
		require.Contains(t, metrics, "tributary_upgrade_in_progress 0\n")
		require.Contains(t, metrics, `tributary_source_synced{source="never"} 0`)
	}
	eventually(t, func() error {
		return contains(command(t, "history", "--admin", u.admin).stdout, "upgrade-failed")
	})
}

// A source that was never read does not stand in the way of an upgrade: what it may own stays as it was, and other sources are followed.
func TestUpgradeWithAPendingSource(t *testing.T) {
	u := upgradable(t)
	u.pend(t)
	before := u.owner()
	got := command(t, "upgrade", "--admin", u.admin)
	require.Zero(t, got.code, got.stderr)
	require.NotEqual(t, before, u.owner())
	u.alone(t)
	u.awaitReady(t)
	u.serves(t, "counter", "kept")
	u.follows(t, 2)
	require.NoError(t, os.Remove(u.dir+"/rules/counter.yaml"))
	u.serves(t, "kept")

	// Once the source can be read, what it does not have goes.
	u.configure(t, "{name: rules, address: 'fs://./rules'}")
	status, body := u.post(t, "/-/reload")
	require.Equal(t, http.StatusOK, status, body)
	u.serves(t)
	eventually(t, func() error {
		return contains(command(t, "history", "--admin", u.admin).stdout, "upgraded")
	})
}

// What a person has released stays released in the process that takes over, and the history knows of it.
func TestAReleaseOutlivesAnUpgrade(t *testing.T) {
	u := upgradable(t)
	for i := range 30 {
		write(t, fmt.Sprintf("%s/rules/entry-%d.yaml", u.dir, i), entry(fmt.Sprint("entry-", i), 80))
	}
	eventually(t, func() error {
		return contains(command(t, "status", "--admin", u.admin).stdout, "objects       32")
	})
	for i := range 30 {
		require.NoError(t, os.Remove(fmt.Sprintf("%s/rules/entry-%d.yaml", u.dir, i)))
	}
	eventually(t, func() error {
		return contains(command(t, "guard", "list", "--admin", u.admin).stdout, "objects and 0 endpoints\n")
	})
	got := command(t, "guard", "release", "rules", "--admin", u.admin)
	require.Zero(t, got.code, got.stderr)
	got = command(t, "upgrade", "--admin", u.admin)
	require.Zero(t, got.code, got.stderr)
	u.follows(t, 2)
	u.serves(t, "counter", "kept")
	got = command(t, "history", "--admin", u.admin)
	assert.Regexp(t, `Z  held +- +rules +hold \w+: `, got.stdout)
	assert.Regexp(t, `Z  hold-ended +- +rules +hold \w+: it was released by \S+@`, got.stdout)
}

// stopped complains for as long as a process runs.
func stopped(pid int) func() error {
	return func() error {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil //nolint:nilerr // it has ended
		}
		return contains(string(state), ") T ")
	}
}

// programs are the processes of the program in dir, but for one.
func programs(t *testing.T, dir string, but int) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == but {
			continue
		}
		at, _ := os.Readlink("/proc/" + e.Name() + "/cwd")
		state, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		if at == dir && !strings.Contains(string(state), ") Z ") {
			pids = append(pids, pid)
		}
	}
	return pids
}
