package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// configured writes a configuration of sources, each "name: directory", that listens where it may.
func configured(t *testing.T, dir string, sources ...string) {
	t.Helper()
	text := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nconfigSources:\n"
	for _, s := range sources {
		name, count, _ := strings.Cut(s, ": ")
		text += "- {name: " + name + ", address: 'fs://" + count + "'}\n"
	}
	write(t, dir+"/tributary.yaml", text)
}

// serves waits until the server has the service entries of namespace shop that are named, and no others.
func (s server) serves(t *testing.T, names ...string) {
	t.Helper()
	eventually(t, func() error {
		result := command(t, "get", "se", "-n", "shop", "-o", "yaml", "--server", s.xds)
		for _, name := range names {
			if !strings.Contains(result.stdout, "name: "+name+"\n") {
				return errors.New(name + " is missing: " + result.stdout + result.stderr)
			}
		}
		if n := strings.Count(result.stdout, "kind: ServiceEntry\n"); n != len(names) {
			return errors.New("more than that: " + result.stdout)
		}
		return nil
	})
}

func TestReloadOnSIGHUP(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/x.yaml", entry("a", 80))
	write(t, dir+"/b/x.yaml", entry("b", 80))
	configured(t, dir, "first: ./a")
	p := program(t, dir, "serve", "--log-format", "json") // finds ./tributary.yaml
	server := listening(t, &p.stderr)
	server.awaitReady(t)

	configured(t, dir, "first: ./a", "second: ./b")
	p.signal(t, syscall.SIGHUP)
	server.serves(t, "a", "b")
	assert.Contains(t, p.stderr.String(), `"msg":"configuration reloaded","file":"`+dir+`/tributary.yaml","by":"SIGHUP","added":["second"]`)

	write(t, dir+"/tributary.yaml", "listne: {}\n")
	p.signal(t, syscall.SIGHUP)
	eventually(t, func() error { return contains(p.stderr.String(), "listne: unknown key") })
	assert.Contains(t, p.stderr.String(), `"msg":"configuration refused, the one in force stays","file":"`+dir+`/tributary.yaml"`)
	server.serves(t, "a", "b")

	p.signal(t, syscall.SIGTERM)
	assert.Zero(t, p.await(t, patience))
}

// TestSIGHUPAtTheStart hangs up while the configuration is being read for the first time: it comes from a pipe, so that the
// test knows.
func TestSIGHUPAtTheStart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/x.yaml", entry("a", 80))
	require.NoError(t, syscall.Mkfifo(dir+"/tributary.yaml", 0o600))
	child := program(t, dir, "serve", "--log-format", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	pipe, err := os.OpenFile(dir+"/tributary.yaml", os.O_WRONLY, 0) // waits for the reader
	require.NoError(t, err)
	child.signal(t, syscall.SIGHUP)
	require.NoError(t, os.Remove(dir+"/tributary.yaml"))
	configured(t, dir, "first: ./a")
	_, err = pipe.WriteString("configSources: [{name: first, address: 'fs://./a'}]\n")
	require.NoError(t, err)
	require.NoError(t, pipe.Close())
	s := listening(t, &child.stderr)
	s.awaitReady(t)
	eventually(t, func() error { return contains(child.stderr.String(), `"msg":"configuration reloaded"`) })
	child.signal(t, syscall.SIGTERM)
	assert.Zero(t, child.await(t, patience))
}

// TestSIGHUPBeforeTheStart hangs up before Go lets the program ask for that, which would end it but for a launcher that ignores it.
func TestSIGHUPBeforeTheStart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/x.yaml", entry("a", 80))
	configured(t, dir, "first: ./a")
	child := launched(t, dir, "sh", "-c", `trap '' HUP; echo ignored; exec "$0" serve --log-format json`, os.Args[0])
	eventually(t, func() error { return contains(child.stdout.String(), "ignored") })
	child.signal(t, syscall.SIGHUP)
	s := listening(t, &child.stderr)
	s.awaitReady(t)
	before := strings.Count(child.stderr.String(), `"msg":"configuration reloaded"`) // the first one may have come late
	child.signal(t, syscall.SIGHUP)
	eventually(t, func() error {
		if n := strings.Count(child.stderr.String(), `"msg":"configuration reloaded"`); n <= before {
			return fmt.Errorf("%d reloads", n)
		}
		return nil
	})
	child.signal(t, syscall.SIGTERM)
	assert.Zero(t, child.await(t, patience))
}
