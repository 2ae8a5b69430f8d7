package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"tributary/internal/testutil"
)

// The other commands are in testdata/script/find.txtar.
func TestWatch_ServerOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	s := serving(t, served(dir+"/rules")...)
	s.awaitReady(t)
	write(t, dir+"/other.yaml", "listen: {xds: '"+s.xds+"', admin: '"+s.admin+"'}\nconfigSources: [{address: broken}]\n")

	var events testutil.Buffer
	stop := commandUntil(t, &events, "watch", "se", "-c", "other.yaml")
	defer stop()
	eventually(t, func() error { return contains(events.String(), "reviews") })
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
