package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// TestHistory covers absent objects; the blocks of docs/history.md, which TestPages runs, cover the rest.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/reviews.yaml", entry("reviews", 80))
	write(t, dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	s := serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	say := func(args string) result {
		return command(t, append(strings.Fields(args), "--admin", s.admin)...)
	}
	eventually(t, func() error { return contains(say("history -o json").stdout, `{"from":"2`) })
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

func TestHistory_Off(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	s := serving(t, served(dir)...)
	got := command(t, "history", "--admin", s.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "there is no history: nothing is kept")
}

// TestExplain_DeletedObject asks for an object that was deleted.
func TestExplain_DeletedObject(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	write(t, dir+"/rules/b.yaml", entry("ratings", 80))
	write(t, dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	server := serving(t, "-c", dir+"/tributary.yaml")
	server.awaitReady(t)
	eventually(t, func() error {
		return contains(command(t, "history", "-o", "json", "--admin", server.admin).stdout, `{"from":"2`)
	})
	require.NoError(t, os.Remove(dir+"/rules/b.yaml"))
	var got result
	eventually(t, func() error {
		got = command(t, "explain", "se", "shop/ratings", "--admin", server.admin)
		return contains(got.stdout, "it was there")
	})
	assert.Equal(t, 1, got.code)
	assert.Regexp(t, `(?m)^ServiceEntry shop/ratings: no source has it\n  it was there  until `+times.String()+
		` \(\d+s ago\); it came from rules `+dir+`/rules/b.yaml:1\n`+
		`                last version: tributary history ServiceEntry shop/ratings$`, got.stdout)
	assert.Zero(t, command(t, "history", "ServiceEntry", "shop/ratings", "--admin", server.admin).code)
}

// TestHistory_DirectoryRemoved takes the state directory away from under a server.
func TestHistory_DirectoryRemoved(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	write(t, dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	s := serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	eventually(t, func() error {
		return contains(command(t, "history", "-o", "json", "--admin", s.admin).stdout, `{"from":"2`)
	})
	change := func(port int) {
		write(t, dir+"/rules/a.yaml", entry("reviews", port))
		eventually(t, func() error {
			return contains(command(t, "history", "-o", "json", "--admin", s.admin).stdout, fmt.Sprintf(`"place":"%s/rules/a.yaml:1"`, dir))
		})
	}
	change(81)
	assert.NotContains(t, command(t, "status", "--admin", s.admin).stdout, "HISTORY")
	require.NoError(t, os.RemoveAll(dir+"/state"))
	got := command(t, "status", "--admin", s.admin)
	assert.Contains(t, got.stdout, "\n  HISTORY       the content of "+dir+"/state/history/0000000001.log is lost: it is gone, seen ")
	assert.Contains(t, s.log.String(), `"msg":"a file of the history is damaged: its records are lost","file":"`+dir+
		`/state/history/0000000001.log"`)
	_, metrics := s.page(t, "/metrics")
	assert.Contains(t, metrics, "\ntributary_history_damaged_files_total 1\n")
	change(82)
	eventually(t, func() error { // it is written again
		if got = command(t, "status", "--check", "--admin", s.admin); got.code != 0 {
			return errors.New(got.stdout + got.stderr)
		}
		return nil
	})

	require.NoError(t, os.RemoveAll(dir+"/state"))
	write(t, dir+"/state", "")
	write(t, dir+"/rules/a.yaml", entry("reviews", 83))
	eventually(t, func() error {
		return contains(command(t, "status", "--check", "--admin", s.admin).stdout,
			"the history cannot be written: mkdir "+dir+"/state: not a directory")
	})
	eventually(t, func() error {
		got = command(t, "status", "--admin", s.admin)
		return contains(got.stdout, "1 change is not in it\n")
	})
}
