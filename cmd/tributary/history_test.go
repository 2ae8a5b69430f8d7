package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

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
