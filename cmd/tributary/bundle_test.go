package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/server/identity"
)

// TestBundle_HasNoSecrets plants secrets wherever a configuration, the files that it names and a log can have them, as
// TestSecrets_AppearOnNoPage does for the pages.
func TestBundle_HasNoSecrets(t *testing.T) {
	dir := t.TempDir()
	const planted = "pl4nted"
	token, line, err := identity.NewToken("ci")
	require.NoError(t, err)
	write(t, dir+"/tokens", line)
	write(t, dir+"/consul", planted+"consul\n")
	write(t, dir+"/rules/all.yaml", entry("a", 80))
	text := "# " + planted + " in a comment\nlisten: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: state\nidentity: {tokens: " +
		"tokens}\nconfigSources:\n" +
		"- {address: 'fs://" + dir + "/rules'} # " + planted + "\n" +
		"- {name: e, address: 'eureka://me:" + planted + "%40eureka@127.0.0.1:1/eureka'}\n" +
		"- {name: n, address: 'consul://127.0.0.1:1', tokenFile: consul}\n" +
		"- {name: x, address: 'xds://127.0.0.1:1', tokenFile: consul, tlsSettings: {mode: SIMPLE}}\n"
	write(t, dir+"/tributary.yaml", text)
	s := serving(t, "-c", dir+"/tributary.yaml")
	eventually(t, func() error {
		_, body := s.page(t, "/debug/sources")
		if n := strings.Count(body, `"unreachable"`); n < 3 {
			return errors.New(body)
		}
		return nil
	})
	write(t, dir+"/log", s.log.String()+
		"level=INFO msg=other token="+planted+"one Authorization: Bearer "+planted+"two\n"+
		`{"password":"`+planted+`three","url":"https://me:`+planted+`four@host/"} GET /v1?token=`+planted+"five secret: "+planted+"six\n"+
		"the request to Consul: "+planted+"consul, and "+token+"\n-----BEGIN EC PRIVATE KEY-----\n"+planted+"\n-----END EC PRIVATE KEY-----\n")
	write(t, dir+"/tokens", line+token+"\n") // a user wrote the token in the place of its hash
	got := command(t, "bundle", "-c", dir+"/tributary.yaml", "--admin", s.admin, "--log", dir+"/log", "--file", dir+"/bundle.tar.gz")
	require.Zero(t, got.code, got.stderr)
	files := unpacked(t, dir+"/bundle.tar.gz")
	for _, name := range []string{
		"version.json", "tributary.yaml", "doctor.txt", "status.json", "sources.json", "clients.json", "guard.json", "history.json",
		"metrics.txt", "goroutines.txt", "log.txt",
	} {
		assert.NotEmpty(t, files[name], name)
	}
	for name, text := range files {
		assert.NotContains(t, text, planted, name)
		assert.NotContains(t, text, token[10:], name)
		assert.NotContains(t, text, strings.Fields(line)[1][7:], name)
	}
	assert.NotContains(t, got.stdout+got.stderr, planted)
	assert.Contains(t, files["tributary.yaml"], "eureka://<secret>@127.0.0.1:1/eureka")
	assert.Contains(t, files["tributary.yaml"], "tokenFile: consul")
	assert.Contains(t, files["log.txt"], `"msg":"listening"`, "other text stays")
	assert.Contains(t, files["metrics.txt"], "tributary_view_synced")
	info, err := os.Stat(dir + "/bundle.tar.gz")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	got = command(t, "bundle", "--admin", s.admin, "--file", dir+"/bundle.tar.gz")
	assert.Equal(t, 1, got.code, "it is not written over")
}

func TestBundle_BrokenParts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/tributary.yaml", "configSources: [{address: 'eureka://me:pl4nted@host/'\n")
	got := command(t, "bundle", "-c", dir+"/tributary.yaml", "--admin", "127.0.0.1:1", "--file", dir+"/bundle.tar.gz", "--log", dir+"/none")
	require.Equal(t, exitFailed, got.code, got.stderr)
	files := unpacked(t, dir+"/bundle.tar.gz")
	assert.NotContains(t, files, "tributary.yaml")
	assert.Contains(t, files["errors.txt"], "configuration: it is no YAML")
	assert.Contains(t, files["errors.txt"], "/debug/status: no server listens on 127.0.0.1:1")
	for name, text := range files {
		assert.NotContains(t, text, "pl4nted", name)
	}
}

// unpacked returns the files of an archive by their names without the directory.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	files := make(map[string]string)
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[path.Base(header.Name)] = string(text)
	}
}
