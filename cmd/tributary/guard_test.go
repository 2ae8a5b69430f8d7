package main

import (
	"fmt"
	"os"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGuard follows a mass loss from its hold to its release.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	text := entry("entry-0", 80)
	for i := 1; i < 30; i++ {
		text += "---\n" + entry(fmt.Sprint("entry-", i), 80)
	}
	write(t, dir+"/rules/a.yaml", text)
	s := serving(t, served(dir+"/rules")...)
	s.awaitReady(t)
	assert.Equal(t, result{0, "nothing is held\n", ""}, command(t, "guard", "list", "--admin", s.admin))

	write(t, dir+"/rules/a.yaml", entry("entry-0", 80))
	eventually(t, func() error {
		return contains(command(t, "guard", "list", "--admin", s.admin).stdout, "rules\n  held          29 objects and 0 endpoints\n")
	})
	got := command(t, "status", "--admin", s.admin)
	assert.Contains(t, got.stdout, "objects       30: ServiceEntry 30\n", "all are served on")
	assert.Contains(t, got.stdout, "source rules lost 29 objects, which are held: ")
	got = command(t, "explain", "se", "shop/entry-7", "--admin", s.admin)
	assert.Contains(t, got.stdout, "held          rules removed or shrank this; the change is on hold since ")

	got = command(t, "guard", "release", "nobody", "--admin", s.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "no source of this name")
	got = command(t, "guard", "release", "rules", "--hold", "another", "--admin", s.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "a different hold is active")
	id := regexp.MustCompile(`(?m)^  hold +(\S+)$`).FindStringSubmatch(command(t, "guard", "list", "--admin", s.admin).stdout)
	require.Len(t, id, 2)
	got = command(t, "guard", "release", "rules", "--hold", id[1], "--admin", s.admin)
	require.Zero(t, got.code, got.stderr)
	assert.Equal(t, "29 objects and 0 endpoints of rules are let go\n", got.stdout)
	s.serves(t, "entry-0")
	got = command(t, "guard", "release", "rules", "--admin", s.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "nothing is held")
}

// A restart does not hold a loss again that a person released, and the history keeps the hold and the name of that
// person.
func TestRelease_OutlivesRestart(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		write(t, fmt.Sprintf("%s/rules/entry-%d.yaml", dir, i), entry(fmt.Sprint("entry-", i), 80))
	}
	write(t, dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	first := program(t, dir, "serve", "-c", "tributary.yaml", "--log-format", "json")
	before := listening(t, &first.stderr)
	before.awaitReady(t)
	for i := 1; i < 30; i++ {
		require.NoError(t, os.Remove(fmt.Sprintf("%s/rules/entry-%d.yaml", dir, i)))
	}
	eventually(t, func() error {
		return contains(command(t, "guard", "list", "--admin", before.admin).stdout, "held          29 objects and 0 endpoints\n")
	})
	result := command(t, "guard", "release", "rules", "--admin", before.admin)
	require.Zero(t, result.code, result.stderr)
	first.signal(t, syscall.SIGTERM)
	require.Zero(t, first.await(t, patience))

	second := program(t, dir, "serve", "-c", "tributary.yaml", "--log-format", "json")
	after := listening(t, &second.stderr)
	after.awaitReady(t)
	after.serves(t, "entry-0")
	result = command(t, "history", "--admin", after.admin)
	assert.Regexp(t, `Z  held +- +rules +hold \w+: `, result.stdout)
	assert.Regexp(t, `Z  hold-ended +- +rules +hold \w+: it was released by \S+@`, result.stdout)
}
