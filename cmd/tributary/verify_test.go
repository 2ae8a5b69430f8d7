package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// An istiod that is not connected lacks what came since: that nobody asks for a kind excuses nothing if nobody asks for anything.
func TestVerifyOfAnIstiodThatIsNotConnected(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	istiod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }))
	t.Cleanup(istiod.Close)
	got := command(t, "verify", "--istiod", istiod.URL, "--server", s.xds, "--admin", s.admin, "--settle", "0s")
	assert.Equal(t, 3, got.code, got.stderr)
	assert.Contains(t, got.stdout, "missing    ServiceEntry shop/a: ")
}

func TestVerifyIsForIstiods(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	s := serving(t, append(freely, "--config-source", "fs://"+dir)...)
	s.awaitReady(t)
	got := command(t, "verify", "--istiod", "http://"+s.admin, "--server", s.xds, "--admin", s.admin)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "http://"+s.admin+" is a tributary, and no istiod")
}
