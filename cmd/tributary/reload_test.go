package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/relay"
	"tributary/internal/testutil"
)

// post sends an empty request to the admin server.
func (s server) post(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return s.request(t, http.MethodPost, path)
}

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

func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, dir+"/"+name+"/x.yaml", entry(name, 80))
	}
	configured(t, dir, "first: ./a", "second: ./b")
	server := serving(t, "-c", dir+"/tributary.yaml")
	server.awaitReady(t)
	server.serves(t, "a", "b")

	var events testutil.Buffer
	stop := commandUntil(t, &events, "watch", "se", "--server", server.xds)
	eventually(t, func() error { return contains(events.String(), "added    ServiceEntry shop/b\n") })

	// A source is added, another is changed, and one is not touched.
	configured(t, dir, "first: ./a", "second: ./c", "third: ./b")
	status, body := server.post(t, "/-/reload")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, dir+"/tributary.yaml is in force\nadded: third\nchanged: second\n", body)
	server.serves(t, "a", "b", "c")
	eventually(t, func() error { return contains(events.String(), "added    ServiceEntry shop/c\n") })

	configured(t, dir, "third: ./b", "first: ./a")
	_, body = server.post(t, "/-/reload")
	assert.Equal(t, dir+"/tributary.yaml is in force\nremoved: second\nthe order of the sources is another: of what several have with the "+
		"same precedence, that of the first is served\n", body)
	server.serves(t, "a", "b")
	eventually(t, func() error { return contains(events.String(), "deleted  ServiceEntry shop/c\n") })

	_, body = server.post(t, "/-/reload")
	assert.Equal(t, dir+"/tributary.yaml is in force\nno source is added, changed or removed\n", body)

	// A wrong configuration changes no setting.
	write(t, dir+"/tributary.yaml", "configSources: [{address: 'ftp://x'}]\n")
	status, body = server.post(t, "/-/reload")
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Contains(t, body, dir+"/tributary.yaml is refused, and what was read at 20")
	assert.Contains(t, body, dir+`/tributary.yaml:1:27: configSources[0].address: unknown scheme "ftp"`)
	server.serves(t, "a", "b")
	_, metrics := server.page(t, "/metrics")
	assert.Contains(t, metrics, "tributary_config_last_reload_successful 0\n")

	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:1'}\nconfigSources: [{name: first, address: 'fs://./a'}]\n")
	status, body = server.post(t, "/-/reload")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `listen stays {"xds":"127.0.0.1:0","admin":"127.0.0.1:0"} until a restart; the file says `+
		`{"xds":"127.0.0.1:1","admin":"127.0.0.1:16014"}`)
	server.serves(t, "a")
	eventually(t, func() error { return contains(events.String(), "deleted  ServiceEntry shop/b\n") })
	stop()

	write(t, dir+"/tributary.yaml", "access: [{who: {cidr: [127.0.0.1/32]}}]\nconfigSources: [{name: first, address: 'fs://./a'}]\n")
	_, body = server.post(t, "/-/reload")
	assert.Contains(t, body, "changed settings: access\n")
	// An update is another place of the source in the order, or another time at which a source had the object first.
	withoutUpdates := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\dZ (updated .*\n)?`).ReplaceAllString(events.String(), "")
	assert.Equal(t, `added    ServiceEntry shop/a
added    ServiceEntry shop/b
added    ServiceEntry shop/c
deleted  ServiceEntry shop/c
deleted  ServiceEntry shop/b
`, withoutUpdates, "no object is missing in between")
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

// TestReload_NamesUnreadSources adds a source that cannot be read.
func TestReload_NamesUnreadSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/a/x.yaml", entry("a", 80))
	configured(t, dir, "first: ./a")
	server := serving(t, "-c", dir+"/tributary.yaml")
	server.awaitReady(t)
	for _, c := range []struct{ required, want string }{
		{"true", "added: dead\nnot read yet: dead; a restart would wait for it before anything is served (required: false serves the others " +
			"without it)\n"},
		{"false", "changed: dead\n"},
	} {
		write(t, dir+"/tributary.yaml", anywhere+"configSources: [{name: first, address: 'fs://./a'}, {name: dead, address: "+
			"'xds://127.0.0.1:1', "+
			"required: "+c.required+"}]\n")
		status, body := server.post(t, "/-/reload")
		assert.Equal(t, http.StatusOK, status)
		assert.True(t, strings.HasSuffix(body, c.want), body)
	}
}

func TestReload_WithoutAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/x.yaml", entry("a", 80))
	s := serving(t, served(dir)...)
	status, body := s.post(t, "/-/reload")
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Equal(t, relay.ErrNoFile.Error()+"\n", body)
	require.NotContains(t, body, "refused")
}
