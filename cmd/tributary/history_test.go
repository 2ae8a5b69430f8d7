package main

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// TestHistoryPage runs the commands of docs/history.md, and compares what they say with what stands there.
func TestHistoryPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/history.md")
	require.NoError(t, err)
	dir := t.TempDir()
	write(t, dir+"/rules/reviews.yaml", entry("reviews", 80))
	write(t, dir+"/rules/ratings.yaml", entry("ratings", 80))
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: state\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	s := serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	say := func(args string) result {
		return command(t, append(strings.Fields(args), "--admin", s.admin)...)
	}
	eventually(t, func() error {
		if got := say("get se --at 0s -A"); got.code != 0 {
			return errors.New(got.stderr)
		}
		return nil
	})
	for _, change := range []struct{ file, text, line string }{
		{"reviews", entry("reviews", 9080), "ServiceEntry shop/reviews"},
		{"ratings", "", "ServiceEntry shop/ratings"},
	} {
		write(t, dir+"/rules/"+change.file+".yaml", change.text)
		if change.text == "" {
			require.NoError(t, os.Remove(dir+"/rules/"+change.file+".yaml"))
		}
		eventually(t, func() error { return contains(say("history").stdout, change.line) })
	}
	mask := func(text string) string {
		return strings.ReplaceAll(times.ReplaceAllString(text, "TIME"), dir+"/", "/etc/tributary/")
	}
	blocks := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllSubmatch(text, -1) {
		for said := range bytes.SplitSeq(block[1], []byte("$ tributary ")) {
			line, want, ok := strings.Cut(string(said), "\n")
			if !ok {
				continue
			}
			blocks++
			line = strings.ReplaceAll(line, "2026-05-04T03:00:00Z", times.FindString(say("history").stdout))
			got := say(line)
			assert.Equal(t, mask(want), mask(strings.ReplaceAll(got.stdout, s.admin, "127.0.0.1:16014")), line+"\n"+got.stderr)
		}
	}
	require.Greater(t, blocks, 3)

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
	assert.Contains(t, got.stderr, "no changes\n")
}

func TestNoHistory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	s := serving(t, served(dir)...)
	got := command(t, "history", "--admin", s.admin)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "there is no history: nothing is kept")
}
