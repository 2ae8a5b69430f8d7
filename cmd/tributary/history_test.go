package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// TestHistory asks for what there is not; what there is docs/history.md shows, which TestPages runs.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/reviews.yaml", entry("reviews", 80))
	write(t, dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	s := serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	say := func(args string) result {
		return command(t, append(strings.Fields(args), "--admin", s.admin)...)
	}
	got := say("get se shop/reviews -o yaml --at 2020-01-01")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "the history does not reach back to 2020-01-01")
	for line, complaint := range map[string]string{
		"history nothing":      `unknown kind "nothing"`,
		"history se a/":        `want NAMESPACE/NAME, got "a/"`,
		"history --since soon": "want how long ago, such as 90s or 1h30m",
		"diff --at 1h a b":     "want one side at most to compare with that of --at, got 2",
	} {
		got := say(line)
		assert.Equal(t, 2, got.code, line)
		assert.Contains(t, got.stderr, complaint)
	}
	got = say("history --source nobody")
	assert.Zero(t, got.code)
	assert.Contains(t, got.stderr, "\nthere is no source nobody now, but rules\n")
}

func TestNoHistory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	s := serving(t, served(dir)...)
	got := command(t, "history", "--admin", s.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "there is no history: nothing is kept")
}
