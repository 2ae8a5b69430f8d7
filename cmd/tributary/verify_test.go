package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// An istiod that is not connected lacks later changes: although no client subscribes to a kind, that excuses no
// difference if no client subscribes at all.
func TestVerify_UnconnectedIstiod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	server := serving(t, served(dir)...)
	server.awaitReady(t)
	istiod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }))
	t.Cleanup(istiod.Close)
	got := command(t, "verify", "--istiod", istiod.URL, "--server", server.xds, "--admin", server.admin, "--settle", "0s")
	assert.Equal(t, 3, got.code, got.stderr)
	assert.Contains(t, got.stdout, "missing    ServiceEntry shop/a: ")
}

// An istiod answers its debug pages only to its own machine.
func TestVerify_DeniedByIstiod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	istiod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(istiod.Close)
	got := command(t, "verify", "--server", s.xds, "--admin", s.admin, "--settle", "0s", "--istiod", istiod.URL)
	assert.NotZero(t, got.code)
	assert.Contains(t, got.stderr,
		"401 Unauthorized: istiod answers this port only to its own machine: run verify there, or give --istiod xds://HOST:15012")
}
