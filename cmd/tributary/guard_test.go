package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
