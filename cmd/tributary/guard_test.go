package main

import (
	"fmt"
	"regexp"
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
	assert.Contains(t, got.stdout, "holds         rules lost 29 objects and 0 endpoints, held since ")
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
