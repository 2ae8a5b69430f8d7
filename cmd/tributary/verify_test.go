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

func TestVerify_RefusesTributary(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	server := serving(t, append(freely, "--config-source", "fs://"+dir)...)
	server.awaitReady(t)
	got := command(t, "verify", "--istiod", "http://"+server.admin, "--server", server.xds, "--admin", server.admin)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "http://"+server.admin+" is a tributary, and no istiod")
}

// TestVerify_Refusals shows that verify names the remedy where an istiod or a flag refuses it.
func TestVerify_Refusals(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	istiod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(istiod.Close)
	for want, flags := range map[string][]string{
		"401 Unauthorized: istiod answers this port only to its own machine: run verify there, or give --istiod xds://HOST:15012": {istiod.URL},
		"--istiod xds://istiod: want host:port":                                              {"xds://istiod"},
		"--istiod: want http://HOST:PORT of istiod's debug pages, got \"istiod\", or xds://": {"istiod"},
		"--istiod-tls-cert wants its private key, --istiod-tls-key, too":                     {"xds://a:1", "--istiod-tls-cert", "a.pem"},
		"--istiod-tls-key is for the certificate of --istiod-tls-cert":                       {"xds://a:1", "--istiod-tls-key", "a.pem"},
		"--istiod-token-file: open /none":                                                    {"xds://a:1", "--istiod-token-file", "/none"},
		"--istiod-tls-ca: open /not/existing":                                                {"xds://a:1", "--istiod-tls-ca", "/not/existing"},
	} {
		got := command(t, append([]string{"verify", "--server", s.xds, "--admin", s.admin, "--settle", "0s", "--istiod"}, flags...)...)
		assert.NotZero(t, got.code, flags)
		assert.Contains(t, got.stderr, want)
	}
}
