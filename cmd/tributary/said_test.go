package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Places that a server tells are read elsewhere: they are absolute, whatever the command line said.
func TestServe_AbsolutePlaces(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir+"/rules/a.yaml", entry("good", 80)+"---\n"+entry("bad", 80000))
	server := serving(t, append(freely, "--config-source", "fs://./rules")...)
	server.awaitReady(t)
	assert.Contains(t, command(t, "explain", "se", "shop/bad", "--admin", server.admin).stdout, dir+"/rules/a.yaml:9:47")
	assert.Contains(t, command(t, "explain", "se", "shop/good", "--admin", server.admin).stdout, dir+"/rules/a.yaml:1")
	assert.Contains(t, server.log.String(), dir+"/rules/a.yaml:9:47")
}

func TestInit_UnknownHost(t *testing.T) {
	t.Chdir(t.TempDir())
	got := command(t, "init", "--host", "no such host")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "error: --host no such host: ")
	assert.NoFileExists(t, "tributary.yaml")
}

// Times are UTC everywhere, and say so, whatever the zone of the user is.
func TestTimes_AreUTC(t *testing.T) {
	t.Setenv("TZ", "Asia/Tokyo")
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	write(t, dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: [{name: rules, address: 'fs://./rules'}]\n")
	s := serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	port := 81
	eventually(t, func() error { // the history may begin after the first change
		write(t, dir+"/rules/a.yaml", entry("a", port))
		port++
		return contains(command(t, "history", "--admin", s.admin).stdout, "ServiceEntry shop/a")
	})
	for _, args := range [][]string{{"status"}, {"history"}, {"explain", "se", "shop/a"}} {
		assert.Regexp(t, `20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, command(t, append(args, "--admin", s.admin)...).stdout, args)
	}
	assert.NotContains(t, s.log.String(), "+09:00")
}
