package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestServeReadsADirectory has a configuration of several files served and reloaded, and found by the commands that are given the
// directory.
func TestServeReadsADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/conf.d/10-listen.yaml", anywhere+"stateDir: off\n")
	write(t, dir+"/conf.d/20-a.yaml", "configSources: [{name: a, address: 'fs://../a'}]\n")
	write(t, dir+"/conf.d/30-b.yaml", "configSources: [{name: b, address: 'fs://../b'}]\n")
	write(t, dir+"/a/a.yaml", entry("a", 80))
	write(t, dir+"/b/b.yaml", entry("b", 80))
	s := serving(t, "-c", dir+"/conf.d")
	s.awaitReady(t)
	got := command(t, "status", "--admin", s.admin)
	assert.Contains(t, got.stdout, "  config        "+dir+"/conf.d, read ")
	assert.Contains(t, got.stdout, "ServiceEntry 2\n")

	write(t, dir+"/conf.d/40-c.yaml", "configSources: [{name: c, address: 'fs://../c'}]\nstateDir: x\n")
	write(t, dir+"/c/c.yaml", entry("c", 80))
	got = command(t, "reload", "--admin", s.admin)
	assert.Equal(t, 78, got.code)
	assert.Contains(t, got.stderr, dir+"/conf.d/40-c.yaml:2:1: stateDir: given twice, first in "+dir+"/conf.d/10-listen.yaml:2:11")
	got = command(t, "validate", "-c", dir+"/conf.d")
	assert.Equal(t, 3, got.code)
	assert.Contains(t, got.stdout, dir+"/conf.d/40-c.yaml:2:1: stateDir: given twice")
	write(t, dir+"/conf.d/40-c.yaml", "configSources: [{name: c, address: 'fs://../c'}]\n")
	got = command(t, "reload", "--admin", s.admin)
	require.Zero(t, got.code, got.stderr)
	eventually(t, func() error { return contains(command(t, "status", "--admin", s.admin).stdout, "ServiceEntry 3\n") })
	got = command(t, "validate", "-c", dir+"/conf.d")
	assert.Zero(t, got.code, got.stdout+got.stderr)

	got = command(t, "bundle", "-c", dir+"/conf.d", "--admin", s.admin, "--file", dir+"/b.tar.gz")
	require.Zero(t, got.code, got.stderr)
	files := unpacked(t, dir+"/b.tar.gz")
	assert.Contains(t, files["20-a.yaml"], "fs://../a")
	got = command(t, "doctor", "-c", dir+"/conf.d", "--offline")
	assert.Contains(t, got.stdout, dir+"/conf.d: 3 sources")
}

// TestConfig: config prints the configuration in force; read as a file, the output is the same configuration.
func TestConfig(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/tributary.yaml", `listen: {admin: 'localhost:1'}
limits:
  streams: 7
configSources:
- {name: a, address: 'fs://./rules', guard: off, transform: {labels: {add: {made: "yes"}}}}
- {name: b, address: 'nacos://user:password1@h:8848?password=password2', merge: endpoints, labelParams: [x]}
- {name: c, address: 'consul://h:8500', required: false}
`)
	result := command(t, "config", "-c", dir+"/tributary.yaml")
	require.Zero(t, result.code, result.stderr)
	for _, line := range []string{
		"  xds: 127.0.0.1:16010 # default\n", "  admin: localhost:1 # " + dir + "/tributary.yaml:1\n",
		"  streams: 7 # " + dir + "/tributary.yaml:3\n",
		"  streamsPerPeer: 5000 # default\n", "    address: fs://" + dir + "/rules # ", "    guard: \"off\" # ", "          made: \"yes\" # ",
		"stateDir: " + os.Getenv("XDG_STATE_HOME"),
		"    rescanInterval: 30s # default\n", "    address: nacos://<secret>@h:8848?password=<secret> # ", "      share: 50% # default\n",
		"        priority: 0 # default\n",
		"    required: false # " + dir + "/tributary.yaml:7\n", "    hostTemplate: '{service}.service.consul' # default\n",
	} {
		assert.Contains(t, result.stdout, line)
	}
	assert.NotContains(t, result.stdout, "password1")
	assert.NotContains(t, result.stdout, "labelMeta", "a key that has neither a value nor a default is left out")

	printed := strings.ReplaceAll(result.stdout, "<secret>@", "a:b@") // which has to be there
	_, err := config.Parse("printed", []byte(printed))
	require.NoError(t, err)
	write(t, dir+"/printed.yaml", printed)
	reprinted := command(t, "config", "-c", dir+"/printed.yaml", "-o", "json")
	require.Zero(t, reprinted.code, reprinted.stderr)
	type setting struct {
		Key   string
		Value any
		From  string
	}
	var first, second []setting
	require.NoError(t, json.Unmarshal([]byte(command(t, "config", "-c", dir+"/tributary.yaml", "-o", "json").stdout), &first))
	require.NoError(t, json.Unmarshal([]byte(reprinted.stdout), &second))
	for i := range second {
		second[i].From = first[i].From
	}
	require.Equal(t, first, second)
	require.Contains(t, first, setting{"configSources[1].labelParams[0]", "x", dir + "/tributary.yaml:6"})
	require.Contains(t, first, setting{"limits.names", 5e6, "default"})

	write(t, dir+"/wrong.yaml", "listen: {xsd: ':1'}\n")
	result = command(t, "config", "-c", dir+"/wrong.yaml")
	assert.Equal(t, 78, result.code)
	assert.Contains(t, result.stderr, dir+"/wrong.yaml:1:10: listen.xsd: unknown key")
}
