package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
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
	return syscall.Exec(program[0], program, slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, calls+"=") }))
}

// confinement has the unit's restrictions of the program, as far as they work without systemd: the system calls, the
// visible part of /proc, and no capability of root.
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
		if key, value, isSetting := strings.Cut(strings.TrimSpace(line), "="); isSetting && !strings.HasPrefix(key, "#") {
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
	syscalls, err := arch.GetInfo("")
	require.NoError(c.t, err)
	allowed := map[string]bool{}
	var mark func(name string, allow bool)
	mark = func(name string, allow bool) {
		if members, set := sets[name]; set {
			for _, member := range members {
				mark(member, allow)
			}
		} else if _, isSyscall := syscalls.SyscallNames[name]; isSyscall {
			allowed[name] = allow
		}
	}
	for _, line := range append([]string{"@default"}, c.unit["SystemCallFilter"]...) {
		list, denied := strings.CutPrefix(line, "~")
		for name := range strings.FieldsSeq(list) {
			mark(name, !denied)
		}
	}
	var names []string
	for name, allow := range allowed {
		if allow {
			names = append(names, name)
		}
	}
	require.Greater(c.t, len(names), 100)
	return names
}

// command is a program as the unit confines it, run by the group nobody, or by the given group.
func (c *confinement) command(program ...string) *exec.Cmd { return c.commandOf("", program...) }

func (c *confinement) commandOf(group string, program ...string) *exec.Cmd {
	options := []string{"hidepid=" + c.unit["ProtectProc"][0]}
	if subset := c.unit["ProcSubset"]; len(subset) > 0 && subset[0] != "all" {
		options = append(options, "subset="+subset[0])
	}
	user, _, _ := strings.Cut(nobody, ":")
	group = cmp.Or(group, user)
	cmd := exec.CommandContext(c.t.Context(), "unshare", append([]string{
		"--mount", "--propagation", "private", "sh", "-ec",
		`mount -t proc -o "$1" proc /proc; user=$2; group=$3; shift 3
		exec setpriv --reuid "$user" --regid "$group" --clear-groups --no-new-privs --bounding-set=-all ` +
			`"$@"`, "sh", strings.Join(options, ","), user, group, c.self,
	}, program...)...)
	cmd.Env = append(os.Environ(), calls+"="+strings.Join(c.calls, " "))
	return cmd
}

// build makes the program of a version, in the place of the one that is there.
func (c *confinement) build(version string) (program string) {
	c.t.Helper()
	program = filepath.Join(c.dir, "tributary")
	require.NoError(c.t, (&release{source: "..", version: version}).build(c.t.Context(), target{"linux", runtime.GOARCH}, program+".new"))
	require.NoError(c.t, os.Rename(program+".new", program)) // as dpkg does, while the one before runs
	return program
}

// configure writes the configuration with an address of the admin server, and its folders.
func (c *confinement) configure(admin string) (file, state string) {
	c.t.Helper()
	file, state = filepath.Join(c.dir, "tributary.yaml"), filepath.Join(c.dir, "state")
	for _, dir := range []string{filepath.Join(c.dir, "rules"), state} {
		require.NoError(c.t, os.MkdirAll(dir, 0o777))
		require.NoError(c.t, os.Chmod(dir, 0o777)) //nolint:gosec // another user writes it
	}
	text := "listen: {xds: '127.0.0.1:0', admin: '" + admin + "'}\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n"
	require.NoError(c.t, os.WriteFile(file, []byte(text), 0o644)) //nolint:gosec // another user reads it
	return file, state
}

// service is the program, confined.
type service struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *os.File
	output *bufio.Reader
}

// start starts a command and reads its output; both end with the test: another process may write in its place.
func start(t *testing.T, cmd *exec.Cmd) *service {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stderr = write
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = read.Close()
	})
	return &service{t, cmd, read, bufio.NewReader(read)}
}

// await returns the match of the pattern in a line of the log.
func (s *service) await(pattern string) []string {
	s.t.Helper()
	require.NoError(s.t, s.log.SetReadDeadline(time.Now().Add(patience)))
	var output bytes.Buffer
	for wanted := regexp.MustCompile(pattern); ; {
		line, err := s.output.ReadString('\n')
		output.WriteString(line)
		if match := wanted.FindStringSubmatch(line); match != nil {
			return match
		}
		require.NoError(s.t, err, "waiting for %s in\n%s", pattern, output.String())
	}
}

// manager is a service manager that keeps its notifications.
type manager struct {
	t             *testing.T
	path          string
	notifications chan string
}

func (c *confinement) manager() *manager {
	c.t.Helper()
	m := &manager{c.t, filepath.Join(c.dir, "notify"), make(chan string, 1000)}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	require.NoError(c.t, err)
	require.NoError(c.t, os.Chmod(m.path, 0o777)) //nolint:gosec // another user writes to it
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			select {
			case m.notifications <- string(buf[:n]):
			default: // no test waits for so many
			}
		}
	}()
	c.t.Cleanup(func() {
		_ = conn.Close() // it is over
		<-ended
	})
	return m
}

// await waits until the manager gets a notification.
func (m *manager) await(want string) {
	m.t.Helper()
	for late := time.After(patience); ; {
		select {
		case notification := <-m.notifications:
			if notification == want {
				return
			}
		case <-late:
			require.Fail(m.t, "waited in vain", "for %s", want)
		}
	}
}

// page returns one of the admin server.
func page(t *testing.T, address, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	return string(text)
}

// The program works within the unit's restrictions as well as outside: ports take as many waiting connections as the
// kernel allows, and the metrics have its start time.
func TestConfinedAsByTheUnit(t *testing.T) {
	c := confined(t)
	nice, err := exec.LookPath("nice")
	require.NoError(t, err)
	var ended *exec.ExitError
	require.ErrorAs(t, c.command(nice, "-n", "1", "true").Run(), &ended)
	require.Equal(t, syscall.SIGSYS, ended.Sys().(syscall.WaitStatus).Signal(), "a system call that is not allowed ends its process")

	program := c.build("v1.2.3")
	file, state := c.configure("127.0.0.1:0")
	systemd := c.manager()
	cmd := c.command(program, "serve", "-c", file, "--state-dir", state, "--log-format", "json")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+systemd.path)
	s := start(t, cmd)
	systemd.await("READY=1")
	ports := s.await(`"listening","xds":"([^"]*)","admin":"([^"]*)"`)[1:]
	most, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	require.NoError(t, err)
	for _, address := range ports {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		line := strings.Fields(execute(t, ".", "ss", "-Hltn", "sport = :"+port))
		require.Greater(t, len(line), 2)
		require.Equal(t, strings.TrimSpace(string(most)), line[2], "connections that may wait at %s", address)
	}
	require.Contains(t, page(t, ports[1], "/metrics"), "\nprocess_start_time_seconds ")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	s.await(`"configuration reloaded"`)

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err)
	require.Regexp(t, `\nSeccomp:\t2\n`, string(status))
	require.Regexp(t, `\nCapBnd:\t0+\n`, string(status))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	systemd.await("STOPPING=1")
	s.await(`"stopped"`)
	require.NoError(t, s.cmd.Wait(), "no call ends it that is not allowed")
}

// The program gives a unix socket to a group where that is allowed; otherwise it reports an error: an attempt would end
// the process without a message.
func TestUnit_SocketGroup(t *testing.T) {
	c := confined(t)
	program := c.build("v1.2.3")
	socket := filepath.Join(c.dir, "run", "admin.sock")
	require.NoError(t, os.Mkdir(filepath.Dir(socket), 0o777))
	require.NoError(t, os.Chmod(filepath.Dir(socket), 0o777)) //nolint:gosec // another user writes it
	file, state := c.configure("unix://" + socket + "?mode=0660&group=users")
	serve := []string{program, "serve", "-c", file, "--state-dir", state, "--log-format", "json"}

	out, err := c.command(serve...).CombinedOutput()
	var ended *exec.ExitError
	require.ErrorAs(t, err, &ended, "%s", out)
	require.True(t, ended.Exited(), "%s: %s", ended, out)
	require.Contains(t, string(out), "group users of "+socket+": this process is not in it, and may not give files away: run it in that group")

	s := start(t, c.commandOf("users", serve...)) // as with Group=users in the unit
	s.await(`"listening"`)
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	users, err := user.LookupGroup("users")
	require.NoError(t, err)
	require.Equal(t, users.Gid, strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid)))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait())
}
