package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/stretchr/testify/require"
)

const (
	patience = time.Minute
	calls    = "TRIBUTARY_TEST_CALLS" // has this program confine itself to these system calls, and become the one in its arguments
)

func TestMain(m *testing.M) {
	if allowed := os.Getenv(calls); allowed != "" {
		fmt.Fprintln(os.Stderr, become(strings.Fields(allowed), os.Args[1:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// become runs a program in the place of this one; a call that is not allowed ends it, as with SystemCallFilter=.
func become(allowed, program []string) error {
	err := seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: seccomp.Policy{
		DefaultAction: seccomp.ActionKillProcess, Syscalls: []seccomp.SyscallGroup{{Names: allowed, Action: seccomp.ActionAllow}},
	}})
	if err != nil {
		return err
	}
	return syscall.Exec(program[0], program, slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, calls+"=") })) //nolint:gosec // of the test
}

// confinement is what the unit leaves to the program, as far as it can be had without systemd: the system calls, what is seen of
// /proc, and no right of root.
type confinement struct {
	t     *testing.T
	dir   string // that the program may read
	self  string // this program, where it may be run
	unit  map[string][]string
	calls []string
}

func confined(t *testing.T) *confinement {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount another /proc")
	}
	for _, tool := range []string{"systemd-analyze", "unshare", "setpriv", "ss"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	c := &confinement{t: t, dir: t.TempDir(), unit: map[string][]string{}}
	require.NoError(t, os.Chmod(filepath.Dir(c.dir), 0o755)) //nolint:gosec // another user runs what is in it
	c.self = filepath.Join(c.dir, "self")
	running, err := os.Executable()
	require.NoError(t, err)
	execute(t, ".", "install", "-m", "755", running, c.self)
	unit, err := os.ReadFile("files/tributary.service")
	require.NoError(t, err)
	for line := range strings.Lines(string(unit)) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), "="); is && !strings.HasPrefix(key, "#") {
			c.unit[key] = append(c.unit[key], value)
		}
	}
	c.calls = c.allowed()
	return c
}

// allowed are the system calls that the unit allows.
func (c *confinement) allowed() []string {
	sets, last := map[string][]string{}, ""
	list := execute(c.t, ".", "systemd-analyze", "syscall-filter")
	for s := bufio.NewScanner(strings.NewReader(list)); s.Scan(); {
		word := strings.TrimSpace(s.Text())
		switch {
		case word == "" || word[0] == '#':
		case s.Text()[0] == '@':
			last = word
		case last != "":
			sets[last] = append(sets[last], word)
		}
	}
	known, err := arch.GetInfo("")
	require.NoError(c.t, err)
	allowed := map[string]bool{}
	var mark func(name string, is bool)
	mark = func(name string, is bool) {
		if members, set := sets[name]; set {
			for _, member := range members {
				mark(member, is)
			}
		} else if _, here := known.SyscallNames[name]; here {
			allowed[name] = is
		}
	}
	for _, line := range append([]string{"@default"}, c.unit["SystemCallFilter"]...) {
		list, not := strings.CutPrefix(line, "~")
		for name := range strings.FieldsSeq(list) {
			mark(name, !not)
		}
	}
	var names []string
	for name, is := range allowed {
		if is {
			names = append(names, name)
		}
	}
	require.Greater(c.t, len(names), 100)
	return names
}

// command is a program as the unit confines it.
func (c *confinement) command(program ...string) *exec.Cmd {
	options := []string{"hidepid=" + c.unit["ProtectProc"][0]}
	if subset := c.unit["ProcSubset"]; len(subset) > 0 && subset[0] != "all" {
		options = append(options, "subset="+subset[0])
	}
	user, _, _ := strings.Cut(nobody, ":")
	cmd := exec.CommandContext(c.t.Context(), "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-ec", //nolint:gosec // of the test
		`mount -t proc -o "$1" proc /proc; user=$2; shift 2
		exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all "$@"`, "sh", strings.Join(options, ","), user, c.self}, program...)...)
	cmd.Env = append(os.Environ(), calls+"="+strings.Join(c.calls, " "))
	return cmd
}

// In what the unit leaves to it the program does its work, and as well as outside: ports take as many waiting connections as the
// kernel allows, and the metrics say since when it runs.
func TestConfinedAsByTheUnit(t *testing.T) {
	c := confined(t)
	nice, err := exec.LookPath("nice")
	require.NoError(t, err)
	var ended *exec.ExitError
	require.ErrorAs(t, c.command(nice, "-n", "1", "true").Run(), &ended)
	require.Equal(t, syscall.SIGSYS, ended.Sys().(syscall.WaitStatus).Signal(), "calls that are not allowed end who makes them")

	program := filepath.Join(c.dir, "tributary")
	require.NoError(t, (&release{source: "..", version: "v1.2.3"}).build(t.Context(), target{"linux", runtime.GOARCH}, program))
	file, state := filepath.Join(c.dir, "tributary.yaml"), filepath.Join(c.dir, "state")
	require.NoError(t, os.Mkdir(filepath.Join(c.dir, "rules"), 0o755)) //nolint:gosec // another user reads it
	require.NoError(t, os.Mkdir(state, 0o777))
	require.NoError(t, os.Chmod(state, 0o777))                                                                                                                             //nolint:gosec // another user writes it
	require.NoError(t, os.WriteFile(file, []byte("listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n"), 0o644)) //nolint:gosec // another user reads it
	cmd := c.command(program, "serve", "-c", file, "--state-dir", state, "--log-format", "json")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := bufio.NewReader(stderr)
	await := func(pattern string) []string {
		t.Helper()
		var all bytes.Buffer
		for wanted := regexp.MustCompile(pattern); ; {
			line, err := said.ReadString('\n')
			all.WriteString(line)
			if found := wanted.FindStringSubmatch(line); found != nil {
				return found
			}
			require.NoError(t, err, "waiting for %s in\n%s", pattern, all.String())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })() // ends await, too

	ports := await(`"listening","xds":"([^"]*)","admin":"([^"]*)"`)[1:]
	most, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	require.NoError(t, err)
	for _, address := range ports {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		line := strings.Fields(execute(t, ".", "ss", "-Hltn", "sport = :"+port))
		require.Greater(t, len(line), 2)
		require.Equal(t, strings.TrimSpace(string(most)), line[2], "connections that may wait at %s", address)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ports[1]+"/metrics", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	metrics, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Contains(t, string(metrics), "\nprocess_start_time_seconds ")

	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	await(`"configuration reloaded"`)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	await(`"stopped"`)
	require.NoError(t, cmd.Wait())
}
