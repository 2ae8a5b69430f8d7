package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	execute(t, tools, "sh", "-ec", "apt-get -qq download debootstrap || { apt-get -qq update; apt-get -qq download debootstrap; }; dpkg-deb -x debootstrap_*.deb .")
	r := root{t, t.TempDir()}
	t.Setenv("DEBOOTSTRAP_DIR", filepath.Join(tools, "usr/share/debootstrap"))
	execute(t, tools, "usr/sbin/debootstrap", "--variant=minbase", "--include=systemd,procps", "bookworm", r.dir, "http://deb.debian.org/debian")
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

// files are all but what dpkg and its helpers keep for themselves.
func (r root) files() []string {
	r.t.Helper()
	list := execute(r.t, r.dir, "find", ".", "-xdev", "-not", "-path", "./var/lib/dpkg/*", "-not", "-path", "./var/log/*", "-not", "-path", "./var/cache/*",
		"-not", "-path", "./proc/*", "-not", "-path", "./etc/*shadow-", "-not", "-path", "./etc/*-")
	return strings.Fields(list)
}

// The package installs on a clean Debian, its units are right, and it leaves nothing but what was asked to stay.
func TestDebian(t *testing.T) {
	r := debian(t)
	made := release{source: "..", out: t.TempDir(), version: "v1.2.3", date: commit}
	require.NoError(t, made.make(t.Context(), here))
	content, err := os.ReadFile(filepath.Join(made.out, "tributary_1.2.3_linux_amd64.deb"))
	require.NoError(t, err)
	before := r.files()
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "run/tributary.deb"), content, 0o600))
	r.run("dpkg", "-i", "/run/tributary.deb")
	require.NoError(t, os.Remove(filepath.Join(r.dir, "run/tributary.deb")))

	require.Contains(t, r.run("tributary", "version"), "tributary v1.2.3")
	require.Contains(t, r.run("tributary", "validate", "--offline", "/etc/tributary/tributary.yaml"), "0 errors")
	require.Contains(t, r.run("getent", "passwd", "tributary"), "/usr/sbin/nologin")
	execute(t, r.dir, "systemd-analyze", "--root="+r.dir, "--man=no", "verify", "tributary.service", "tributary.socket")
	execute(t, r.dir, "systemd-analyze", "security", "--offline=yes", "--threshold=20", filepath.Join(r.dir, "usr/lib/systemd/system/tributary.service")) // 2.0

	r.run("systemctl", "enable", "tributary.service", "tributary.socket")
	state := filepath.Join(r.dir, "var/lib/tributary")
	require.NoError(t, os.Mkdir(state, 0o700)) // as the service has it made
	r.run("dpkg", "-r", "tributary")
	require.ElementsMatch(t, append(before, "./var/lib/tributary", "./etc/tributary", "./etc/tributary/tributary.yaml"), r.files(), "what is left is the state, and the configuration")
	r.run("dpkg", "--purge", "tributary")
	require.ElementsMatch(t, before, r.files())
	require.NotContains(t, r.run("getent", "passwd"), "tributary")
}
