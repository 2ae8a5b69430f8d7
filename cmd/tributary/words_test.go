package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsage_Suggestions(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"stauts"}, `unknown command "stauts" for "tributary" (did you mean status?)`},
		{[]string{"guard", "lst"}, `unknown command "lst" for "tributary guard" (did you mean list?)`},
		{[]string{"get", "sevices"}, `unknown kind "sevices"; known`},
		{[]string{"get", "serviceentrys"}, `unknown kind "serviceentrys" (did you mean serviceentry?); known`},
		{[]string{"get", "lisseners"}, `(did you mean listeners?)`},
		{[]string{"status", "--amdin", "x"}, `unknown flag: --amdin (did you mean admin?)`},
		{[]string{"get", "se", "--server", "http://x:1"}, "http:// is not for xDS"},
		{[]string{"get", "se", "--server", "x"}, "want host:port"},
		{[]string{"diff", "-", "--server", "http://x:1"}, "http:// is not for xDS"},
	} {
		got := command(t, c.args...)
		assert.Equal(t, exitUsage, got.code, "%v", c.args)
		assert.Contains(t, got.stderr, c.says, "%v", c.args)
	}
	got := command(t, "status", "--admin", "xds://x:1")
	assert.Contains(t, got.stderr, "xds://x:1 is an address for xDS")
}

func TestCommands_ServersOfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	t.Setenv(envServer, "xds://"+s.xds)
	t.Setenv(envAdmin, "http://"+s.admin)
	assert.Contains(t, command(t, "get", "se", "-A").stdout, "reviews")
	assert.Contains(t, command(t, "status").stdout, "healthy")
	assert.Equal(t, result{0, "ok: 1 source, 1 object, 0 clients\n", ""}, command(t, "status", "--check"))

	write(t, dir+"/b.yaml", entry("bad", 80000))
	eventually(t, func() error {
		if got := command(t, "status", "--check"); got.code != exitFindings || got.stdout == "" {
			return assert.AnError
		}
		return nil
	})
	got := command(t, "status", "--check")
	assert.Contains(t, got.stdout, "1 object is not valid, and quarantined: 001: "+dir+
		"/b.yaml:4:47: ServiceEntry shop/bad: port number 80000")
	got = command(t, "status", "--check", "-o", "json")
	assert.Equal(t, exitFindings, got.code)
	assert.True(t, json.Valid([]byte(got.stdout)))
}

func TestReloadByCommand(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	file := dir + "/tributary.yaml"
	write(t, file, "stateDir: off\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	s := serving(t, append(freely, "-c", file)...)
	s.awaitReady(t)
	assert.Equal(t, result{0, file + " is in force\nno source is added, changed or removed\n", ""}, command(t, "reload", "--admin", s.admin))
	t.Setenv(envAdmin, s.admin)
	assert.Equal(t, result{0, file + " is in force\nno source is added, changed or removed\n", "server: " + s.admin + " ($TRIBUTARY_ADMIN)\n"},
		command(t, "reload"))
	write(t, file, "stateDir: off\nconfigSources: [{address: 'ftp://x'}]\n")
	got := command(t, "reload", "--admin", s.admin)
	assert.Equal(t, exitConfig, got.code)
	assert.Contains(t, got.stderr, `unknown scheme "ftp"`)
	assert.Equal(t, exitFindings, command(t, "status", "--check", "--admin", s.admin).code)
	assert.Equal(t, exitFailed, command(t, "reload", "--admin", "127.0.0.1:1").code)
}

// A server goes on when the reader of its log ends.
func TestLogWithoutAReader(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	read, written, err := os.Pipe()
	require.NoError(t, err)
	// The output before that has the address of the server.
	addresses := dir + "/addresses"
	child := prepared(t, dir, func(c *exec.Cmd) { c.Stderr = written },
		append([]string{os.Args[0], "serve", "--log-format", "json"},
			append([]string{"--listen", "unix://" + dir + "/x", "--admin", "unix://" + addresses}, "--config-source", "fs://"+dir, "--state-dir",
				"off")...)...)
	require.NoError(t, written.Close())
	ready := func() error {
		if got := command(t, "status", "--check", "--admin", "unix://"+addresses); got.code != 0 {
			return assert.AnError
		}
		return nil
	}
	eventually(t, ready)
	require.NoError(t, read.Close())
	for _, name := range []string{"b", "c", "d"} {
		write(t, dir+"/"+name+".yaml", entry(name, 80)) // it is logged
		eventually(t, func() error {
			if got := command(t, "explain", "se", "shop/"+name, "--admin", "unix://"+addresses); got.code != 0 {
				return assert.AnError
			}
			return nil
		})
	}
	select {
	case <-child.ended:
		require.Fail(t, "the server ended")
	default:
	}
}
