package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// TestCommands_ServerOfTheConfiguration has two servers: one in a configuration, and one that only flags or variables name.
func TestCommands_ServerOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	s := serving(t, served(dir+"/rules")...)
	s.awaitReady(t)
	write(t, dir+"/other.yaml", "listen: {xds: '"+s.xds+"', admin: '"+s.admin+"'}\nconfigSources: [{address: broken}]\n")

	for _, args := range [][]string{
		{"status"}, {"guard", "list"}, {"explain", "se", "shop/reviews"}, {"bundle"},
	} {
		got := command(t, append(args, "-c", "other.yaml")...)
		assert.Zero(t, got.code, "%v: %s", args, got.stderr)
	}
	assert.Contains(t, command(t, "status", "-c", "other.yaml").stdout, " at "+s.admin+" (listen.admin of other.yaml), up ")
	assert.Contains(t, command(t, "reload", "-c", "other.yaml").stderr, s.admin+" (listen.admin of other.yaml): ")

	write(t, dir+"/tributary.yaml", "listen: {xds: '"+s.xds+"', admin: '"+s.admin+"'}\n")
	assert.Contains(t, command(t, "status").stdout, " at "+s.admin+" (listen.admin of ./tributary.yaml), up ")
	assert.Contains(t, command(t, "get", "se", "-A").stdout, "reviews")
	assert.Contains(t, command(t, "bootstrap", "istiod").stdout, s.xds)

	t.Setenv(envAdmin, "127.0.0.1:1")
	assert.Contains(t, command(t, "status").stderr, "no server listens on 127.0.0.1:1 ($TRIBUTARY_ADMIN)")
	assert.Contains(t, command(t, "status", "-c", "other.yaml").stdout, " at "+s.admin+" (listen.admin of other.yaml), up ")
	assert.Contains(t, command(t, "status", "-c", "other.yaml", "--admin", "127.0.0.1:2").stderr, "no server listens on 127.0.0.1:2;")
	t.Setenv(envServer, "127.0.0.1:3")
	assert.Contains(t, command(t, "bootstrap", "istiod").stdout, "127.0.0.1:3")
	for _, args := range [][]string{
		{"get", "se", "-A"}, {"diff", "rules"},
	} {
		got := command(t, append(args, "-c", "other.yaml")...)
		assert.Zero(t, got.code, "%v: %s", args, got.stderr)
	}
	assert.Contains(t, command(t, "get", "se", "--at", "0s", "-c", "other.yaml").stderr,
		s.admin+" (listen.admin of other.yaml): there is no history")
	assert.Contains(t, command(t, "verify", "--envoy", "http://127.0.0.1:1", "-c", "other.yaml", "--timeout", "1s", "--settle", "0s").stderr,
		"127.0.0.1:1")
	var events testutil.Buffer
	stop := commandUntil(t, &events, "watch", "se", "-c", "other.yaml")
	defer stop()
	eventually(t, func() error { return contains(events.String(), "reviews") })

	t.Setenv(envAdmin, "")
	write(t, dir+"/tributary.yaml", "listen: {admin: [\n")
	got := command(t, "status")
	assert.Equal(t, exitConfig, got.code)
	assert.Regexp(t, `^error: the admin server is not known; name it with --admin \(by default it is 127.0.0.1:16014\): ./tributary.yaml:1:`,
		got.stderr)
	assert.Equal(t, exitConfig, command(t, "reload").code)
}

// TestBundle_NoServer has bundle ask a server that does not run.
func TestBundle_NoServer(t *testing.T) {
	t.Chdir(t.TempDir())
	got := command(t, "bundle", "--admin", "127.0.0.1:1", "--file", "b.tar.gz")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "error: b.tar.gz lacks the data of the server: no server listens on 127.0.0.1:1;")
	require.FileExists(t, "b.tar.gz")
}

// TestServe_OptionalSource starts with a source that cannot be read.
func TestServe_OptionalSource(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	file := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nconfigSources:\n- address: fs://./rules\n- {name: dead, address: " +
		"'xds://127.0.0.1:1', required: %s}\n"
	write(t, dir+"/t.yaml", fmt.Sprintf(file, "false"))
	server := serving(t, "-c", dir+"/t.yaml")
	server.awaitReady(t)
	eventually(t, func() error { return contains(command(t, "status", "--admin", server.admin).stdout, "unreachable") })
	result := command(t, "status", "--check", "--admin", server.admin)
	assert.Equal(t, exitFindings, result.code)
	assert.Contains(t, result.stdout, "source dead is unreachable")
	result = command(t, "explain", "reviews.example:80", "--admin", server.admin)
	assert.Zero(t, result.code, result.stderr)
	assert.Empty(t, result.stderr)

	write(t, dir+"/t.yaml", fmt.Sprintf(file, "true"))
	server = serving(t, "-c", dir+"/t.yaml", "--state-dir", "off")
	eventually(t, func() error {
		return contains(command(t, "explain", "reviews.example", "--admin", server.admin).stderr, "the server is not ready")
	})
}

func TestGetWatches(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80)+"---\n"+entry("ratings", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	var events testutil.Buffer
	stop := commandUntil(t, &events, "get", "se", "shop/reviews", "-w", "--server", s.xds)
	defer stop()
	eventually(t, func() error { return contains(events.String(), "Z added    ServiceEntry shop/reviews") })
	write(t, dir+"/a.yaml", entry("reviews", 81))
	eventually(t, func() error { return contains(events.String(), "updated  ServiceEntry shop/reviews") })
	assert.NotContains(t, events.String(), "ratings")
}

func TestInit_MissingHost(t *testing.T) {
	t.Chdir(t.TempDir())
	got := command(t, "init", "--host", "nowhere.invalid")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "error: --host nowhere.invalid: ")
	assert.Contains(t, command(t, "init", "--host", "127.0.0.1:8500").stderr, "error: --host 127.0.0.1:8500: want a host without port")
	require.NoFileExists(t, "tributary.yaml")
}

func TestSchema(t *testing.T) {
	assert.Contains(t, command(t, "schema").stdout, `"title": "tributary configuration"`)
}
