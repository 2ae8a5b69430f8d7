package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// root is a Debian that was just installed, in a folder.
type root struct {
	t   *testing.T
	dir string
}

// debian installs one with debootstrap, which takes a minute or two and needs to be run by root.
func debian(t *testing.T) root {
	t.Helper()
	if os.Getenv("PACKAGING_NIGHTLY") == "" || os.Getuid() != 0 {
		t.Skip("for the night, and for root: PACKAGING_NIGHTLY=1")
	}
	tools := t.TempDir()
	execute(t, tools, "sh", "-ec", "apt-get -qq download debootstrap || { apt-get -qq update; apt-get -qq download debootstrap; }; dpkg-deb "+
		"-x debootstrap_*.deb .")
	r := root{t, t.TempDir()}
	t.Setenv("DEBOOTSTRAP_DIR", filepath.Join(tools, "usr/share/debootstrap"))
	execute(t, tools, "usr/sbin/debootstrap", "--variant=minbase", "--include=systemd,procps", "bookworm", r.dir,
		"http://deb.debian.org/debian")
	return r
}

func execute(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s %v:\n%s", program, args, out.String())
	return out.String()
}

// run runs a program in the root.
func (r root) run(args ...string) string {
	r.t.Helper()
	return execute(r.t, r.dir, "chroot", append([]string{r.dir}, args...)...)
}

// files are all files except for those that dpkg and its helpers keep for themselves.
func (r root) files() []string {
	r.t.Helper()
	list := execute(r.t, r.dir, "find", ".", "-xdev", "-not", "-path", "./var/lib/dpkg/*", "-not", "-path", "./var/log/*", "-not", "-path",
		"./var/cache/*",
		"-not", "-path", "./proc/*", "-not", "-path", "./etc/*shadow-", "-not", "-path", "./etc/*-")
	return strings.Fields(list)
}

// The package installs on a clean Debian, its units are valid, and its removal leaves only the state and the
// configuration.
func TestDebian(t *testing.T) {
	r := debian(t)
	built := release{source: "..", out: t.TempDir(), version: "v1.2.3", date: commit}
	require.NoError(t, built.make(t.Context(), host))
	content, err := os.ReadFile(filepath.Join(built.out, "tributary_1.2.3_linux_amd64.deb"))
	require.NoError(t, err)
	before := r.files()
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "run/tributary.deb"), content, 0o600))
	r.run("dpkg", "-i", "/run/tributary.deb")
	require.NoError(t, os.Remove(filepath.Join(r.dir, "run/tributary.deb")))

	require.Contains(t, r.run("tributary", "version"), "tributary v1.2.3")
	require.Contains(t, r.run("tributary", "validate", "--offline", "/etc/tributary/tributary.yaml"), "0 errors")
	require.Contains(t, r.run("getent", "passwd", "tributary"), "/usr/sbin/nologin")
	execute(t, r.dir, "systemd-analyze", "--root="+r.dir, "--man=no", "verify", "tributary.service", "tributary.socket")
	// 2.0
	execute(t, r.dir, "systemd-analyze", "security", "--offline=yes", "--threshold=20",
		filepath.Join(r.dir, "usr/lib/systemd/system/tributary.service"))

	r.run("systemctl", "enable", "tributary.service", "tributary.socket")
	state := filepath.Join(r.dir, "var/lib/tributary")
	require.NoError(t, os.Mkdir(state, 0o700)) // as the service has it made
	r.run("dpkg", "-r", "tributary")
	require.ElementsMatch(t, append(before, "./var/lib/tributary", "./etc/tributary", "./etc/tributary/tributary.yaml"), r.files(),
		"the state and the configuration stay")
	r.run("dpkg", "--purge", "tributary")
	require.ElementsMatch(t, before, r.files())
	require.NotContains(t, r.run("getent", "passwd"), "tributary")
}

// An upgrade from package to package keeps the state and changes of the configuration, and the service goes on with the
// new program when it restarts. There is no systemd in a folder: the restart by postinstall.sh is not tested here.
func TestDebianUpgrade(t *testing.T) {
	r := debian(t)
	install := func(version string) {
		t.Helper()
		built := release{source: "..", out: t.TempDir(), version: version, date: commit}
		require.NoError(t, built.make(t.Context(), host))
		content, err := os.ReadFile(filepath.Join(built.out, "tributary_"+strings.TrimPrefix(version, "v")+"_linux_amd64.deb"))
		require.NoError(t, err)
		deb := filepath.Join(r.dir, "run/tributary.deb")
		require.NoError(t, os.WriteFile(deb, content, 0o600))
		r.run("dpkg", "-i", "/run/tributary.deb")
		require.NoError(t, os.Remove(deb))
	}
	install("v1.2.3")
	file := filepath.Join(r.dir, "etc/tributary/tributary.yaml")
	const changed = "# changed here\nlisten: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nconfigSources: [{name: rules, address: " +
		"'fs:///etc/tributary/rules'}]\n"
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o644))                      //nolint:gosec // it is as the package has it
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "etc/tributary/rules/a.yaml"), //nolint:gosec // the service reads it
		[]byte("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a}\nspec: {host: a.example}\n"), 0o644))
	state := filepath.Join(r.dir, "var/lib/tributary")
	require.NoError(t, os.Mkdir(state, 0o700)) // as the service has it made
	r.run("chown", "tributary:tributary", "/var/lib/tributary")

	// As the unit starts it, but for its sandbox, which is TestConfinedAsByTheUnit's.
	service := func() *exec.Cmd {
		return exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-ec", //nolint:gosec // of the test
			`mount -t proc proc "$1/proc"; exec chroot "$1" setpriv --reuid tributary --regid tributary --clear-groups \
			tributary serve -c /etc/tributary/tributary.yaml --log-format json`, "sh", r.dir)
	}
	s := start(t, service())
	admin := s.await(`"listening","xds":"[^"]*","admin":"([^"]*)"`)[1]
	s.await(`"source synced"`)
	stored := func() (names []string) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Join(state, "sources"))
		require.NoError(t, err)
		for _, entry := range entries {
			if strings.HasSuffix(entry.Name(), ".db") { // and not a file that is being written
				names = append(names, entry.Name())
			}
		}
		return names
	}
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(state, "sources"))
		return err == nil && len(stored()) > 0
	}, patience, time.Millisecond)
	before := stored()

	install("v1.2.4")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, changed, string(text))
	require.Subset(t, stored(), before)
	require.Contains(t, page(t, admin, "/debug/status"), `"version": "v1.2.3"`, "without systemd it is left to whoever installs it")

	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait())
	s = start(t, service())
	admin = s.await(`"listening","xds":"[^"]*","admin":"([^"]*)"`)[1]
	s.await(`"the last published objects are served until the source has been read"`)
	now := page(t, admin, "/debug/status")
	require.Contains(t, now, `"version": "v1.2.4"`)
	require.Contains(t, now, `"DestinationRule": 1`)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait())
	r.run("dpkg", "--purge", "tributary")
	require.NoDirExists(t, state)
}
