package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommandsFindTheServerOfTheConfiguration has two servers: one in a configuration, and one that only flags or variables name.
func TestCommandsFindTheServerOfTheConfiguration(t *testing.T) {
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
	assert.Contains(t, command(t, "status", "-c", "other.yaml").stderr, "nobody listens on 127.0.0.1:1 ($TRIBUTARY_ADMIN)")
	assert.Contains(t, command(t, "status", "-c", "other.yaml", "--admin", "127.0.0.1:2").stderr, "nobody listens on 127.0.0.1:2;")
	t.Setenv(envServer, "127.0.0.1:3")
	assert.Contains(t, command(t, "bootstrap", "istiod").stdout, "127.0.0.1:3")

	t.Setenv(envAdmin, "")
	write(t, dir+"/tributary.yaml", "listen: {admin: [\n")
	got := command(t, "status")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "the admin server is not known; name it with --admin: ./tributary.yaml:1:")
}

// TestBundleOfNobody has bundle ask a server that does not run.
func TestBundleOfNobody(t *testing.T) {
	t.Chdir(t.TempDir())
	got := command(t, "bundle", "--admin", "127.0.0.1:1", "--file", "b.tar.gz")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "error: b.tar.gz has nothing of the server: nobody listens on 127.0.0.1:1;")
	require.FileExists(t, "b.tar.gz")
}
