package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"tributary/cmd/internal/check"
)

// examined is what doctor finds, by check.
func examined(t *testing.T, args ...string) (code int, found map[string][]check.Result) {
	t.Helper()
	got := command(t, append([]string{"doctor", "-o", "json"}, args...)...)
	var all []check.Result
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &all), got.stderr)
	found = make(map[string][]check.Result)
	for _, f := range all {
		found[f.Check] = append(found[f.Check], f)
		if f.Severity == check.Error || f.Severity == check.Warning {
			assert.NotEmpty(t, f.Fix, f.Message)
		}
	}
	return got.code, found
}

// has asserts that there is such a finding.
func has(t *testing.T, found map[string][]check.Result, check string, severity check.Severity, part string) {
	t.Helper()
	for _, f := range found[check] {
		if f.Severity == severity && strings.Contains(f.Message, part) {
			return
		}
	}
	assert.Fail(t, "no such finding", "%s %s %s in %+v", check, severity, part, found[check])
}

func TestDoctor_ValidConfiguration(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: state\nconfigSources: [{name: rules, "+
		"address: 'fs://./rules'}]\n")
	code, found := examined(t, "-c", dir+"/tributary.yaml")
	assert.Zero(t, code)
	has(t, found, "configuration", check.Fine, "1 source")
	has(t, found, "sources", check.Fine, "1 object in files is right")
	has(t, found, "ports", check.Fine, "listen.xds: 127.0.0.1:0 is free")
	has(t, found, "state", check.Fine, dir+"/state can be written")
	has(t, found, "istiod", check.Skipped, "--istiod")
	write(t, dir+"/other.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\n"+
		"configSources: [{name: rules, address: 'fs://./rules'}]\n")
	t.Setenv("XDG_STATE_HOME", dir)
	_, other := examined(t, "-c", dir+"/other.yaml")
	has(t, other, "state", check.Fine, "the default of this user without stateDir and $STATE_DIRECTORY")
	_, err := os.Stat(dir + "/state")
	require.ErrorIs(t, err, os.ErrNotExist, "doctor changes nothing")
	left, err := filepath.Glob(dir + "/.tributary-doctor*")
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestDoctor_Proofs(t *testing.T) {
	dir := t.TempDir()
	settings := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nidentity: {tokens: ./tokens}\nconfigSources: [{name: rules, address: " +
		"'fs://./rules'}]\n"
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	write(t, dir+"/tributary.yaml", settings)
	_, found := examined(t, "-c", dir+"/tributary.yaml")
	has(t, found, "identity", check.Error, dir+"/tokens")
	write(t, dir+"/tokens", "ops "+strings.Repeat("0", 10)+"\n")
	_, found = examined(t, "-c", dir+"/tributary.yaml")
	has(t, found, "identity", check.Error, dir+"/tokens")
	write(t, dir+"/tokens", "")
	_, found = examined(t, "-c", dir+"/tributary.yaml")
	has(t, found, "identity", check.Fine, "right")
}

func TestDoctor_NoConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := os.Stat("/etc/tributary/tributary.yaml"); err == nil {
		t.Skip("this machine has a configuration")
	}
	code, found := examined(t)
	assert.Equal(t, exitFindings, code)
	has(t, found, "configuration", check.Error, "no configuration file; tried ./tributary.yaml")
}

func TestDoctor_UnreadableFiles(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	write(t, dir+"/tributary.yaml", "configSources: [{address: 'fs://./rules'}]\n")
	require.NoError(t, os.Chmod(dir+"/rules", 0))
	defer os.Chmod(dir+"/rules", 0o700) //nolint:errcheck // else the test says so
	_, found := examined(t, "-c", dir+"/tributary.yaml")
	require.NotEmpty(t, found["sources"])
	assert.Contains(t, found["sources"][0].Fix, "the right to read it")
	require.NoError(t, os.Chmod(dir+"/tributary.yaml", 0))
	_, found = examined(t, "-c", dir+"/tributary.yaml")
	assert.Contains(t, found["configuration"][0].Fix, "the right to read it")
}

// A server of ours is known as such without its debug pages, too.
func TestDoctor_ServerWithoutDebugPages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	text := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nadmin: {debug: false}\nconfigSources: [{name: rules, address: " +
		"'fs://./rules'}]\n"
	write(t, dir+"/tributary.yaml", text)
	s := serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	write(t, dir+"/tributary.yaml", strings.Replace(text, "admin: '127.0.0.1:0'", "admin: '"+s.admin+"'", 1))
	_, found := examined(t, "-c", dir+"/tributary.yaml")
	has(t, found, "ports", check.Fine, "listen.admin: a tributary of version")
}

func TestDoctor_Errors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is on this machine
	require.NoError(t, err)
	defer taken.Close() //nolint:errcheck // nobody came
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Permission denied", http.StatusForbidden)
	}))
	defer refusing.Close()
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", strings.Replace(entry("a", 80), "hosts", "host", 1))
	write(t, dir+"/taken", "a file")
	write(t, dir+"/tributary.yaml", "listen: {xds: '"+taken.Addr().String()+
		"', admin: '127.0.0.1:0', xdsTLS: {address: '127.0.0.1:0', certificate: none.pem, key: none.pem}}\n"+
		"stateDir: taken/state\nconfigSources:\n- {name: rules, address: 'fs://./rules'}\n- {name: dc1, address: 'consul://"+
		strings.TrimPrefix(refusing.URL, "http://")+"'}\n"+
		"- {name: far, address: 'xds://nowhere.invalid:15010'}\n")
	code, found := examined(t, "-c", dir+"/tributary.yaml")
	assert.Equal(t, 3, code)
	has(t, found, "sources", check.Error, "ServiceEntry shop/a")
	has(t, found, "sources", check.Error, "nowhere.invalid")
	has(t, found, "rights", check.Error, "source dc1")
	has(t, found, "tls", check.Error, "none.pem")
	has(t, found, "ports", check.Error, taken.Addr().String())
	has(t, found, "state", check.Error, "taken")

	write(t, dir+"/tributary.yaml", "configSource: []\n")
	code, found = examined(t, "-c", dir+"/tributary.yaml")
	assert.Equal(t, 3, code)
	has(t, found, "configuration", check.Error, "configSource: unknown key")
	code, found = examined(t, "-c", dir+"/none.yaml")
	assert.Equal(t, 3, code)
	has(t, found, "configuration", check.Error, "none.yaml")
	got := command(t, "doctor", "--strict", "-c", dir+"/tributary.yaml")
	assert.Contains(t, got.stdout, "to do: correct it there")
}

func TestDoctor_Istiod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:16010', admin: '127.0.0.1:0'}\nstateDir: 'off'\nconfigSources: [{address: "+
		"'fs://./rules'}]\n")
	for mesh, c := range map[string]struct {
		severity check.Severity
		part     string
	}{
		"configSources: [{address: 'xds://mesh-1:16010'}, {address: 'k8s://'}]": {
			check.Fine,
			"it reads Kubernetes, too",
		},
		"meshConfig: {configSources: [{address: 'xds://mesh-1:16010'}]}": {
			check.Warning,
			"without a line k8s://",
		},
		"configSources: [{address: 'xds://mesh-1:15010'}]": {
			check.Error,
			"no config source has our port",
		},
		"configSources: [{address: 'xds://mesh-1'}]": {check.Error, "has no port"},
		"configSources: [{address: 'xds://mesh-1:16010', tlsSettings: {mode: SIMPLE}}]": {
			check.Error,
			"with TLS: true, and that port of ours with TLS: false",
		},
		`{"spec": {"meshConfig": {"configSources": [{"address": "xds://mesh-1:16010"}, {"address": "k8s://"}]}}}`: {
			check.Fine,
			"it reads Kubernetes, too",
		},
	} {
		write(t, dir+"/mesh.yaml", mesh)
		_, found := examined(t, "-c", dir+"/tributary.yaml", "--mesh-config", dir+"/mesh.yaml")
		has(t, found, "istiod", c.severity, c.part)
		istiod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "/debug/mesh", r.URL.Path)
			_, _ = w.Write([]byte(mesh))
		}))
		_, found = examined(t, "-c", dir+"/tributary.yaml", "--istiod", istiod.URL)
		has(t, found, "istiod", c.severity, c.part)
		istiod.Close()
	}
}

func TestDoctor_RunningServer(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	text := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: 'off'\nconfigSources: [{address: 'fs://./rules'}]\n"
	write(t, dir+"/tributary.yaml", text)
	s := serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	write(t, dir+"/tributary.yaml", strings.Replace(text, "admin: '127.0.0.1:0'", "admin: '"+s.admin+"'", 1))
	code, found := examined(t, "-c", dir+"/tributary.yaml")
	assert.Zero(t, code)
	has(t, found, "ports", check.Fine, "a tributary of version")
	has(t, found, "istiod", check.Fine, "0 clients are connected")
	has(t, found, "state", check.Warning, "no state is kept across restarts")
	code, _ = examined(t, "--strict", "-c", dir+"/tributary.yaml")
	assert.Equal(t, 3, code)
}

// TestDoctorThrough holds an idle stream through what may be between an istiod and us.
func TestDoctorThrough(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	text := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: 'off'\nconfigSources: [{address: 'fs://./rules'}]\n"
	write(t, dir+"/tributary.yaml", text)
	s, other := serving(t, "-c", dir+"/tributary.yaml"), serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	other.awaitReady(t)
	write(t, dir+"/tributary.yaml", strings.Replace(text, "admin: '127.0.0.1:0'", "admin: '"+s.admin+"'", 1))
	through := func(address, idle string) (int, map[string][]check.Result) {
		return examined(t, "-c", dir+"/tributary.yaml", "--through", address, "--idle", idle)
	}

	code, found := through("xds://"+s.xds, "10ms")
	assert.Zero(t, code)
	assert.Equal(t, []check.Result{{Check: "keepalive", Severity: check.Fine, Message: s.xds + ": an idle stream stood for 10ms"}},
		found["keepalive"])

	_, found = through(other.xds, "10ms")
	has(t, found, "keepalive", check.Warning, "is not the server that runs with "+dir)

	nobody := quietAfter(t, s.xds, nil)
	code, found = through(nobody, "1h")
	assert.Equal(t, 3, code)
	has(t, found, "keepalive", check.Error, nobody+": after")
	has(t, found, "keepalive", check.Error, "an idle stream was ended")
	assert.Contains(t, found["keepalive"][0].Fix, "raise the idle timeout")

	strict := quietAfter(t, s.xds, func(conn net.Conn) error {
		return http2.NewFramer(conn, nil).WriteGoAway(1, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
	})
	code, found = through(strict, "1h")
	assert.Equal(t, 3, code)
	has(t, found, "keepalive", check.Error, "keepalive pings are refused")
	assert.Contains(t, found["keepalive"][0].Fix, "allow a ping every 30 s")

	code, found = through(s.admin, "1h")
	assert.Equal(t, 3, code)
	has(t, found, "keepalive", check.Error, "it may be the admin port")
	_, found = examined(t, "-c", dir+"/tributary.yaml", "--through", s.xds, "--offline")
	has(t, found, "keepalive", check.Skipped, "--through")
}

// quietAfter passes connections on to address and ends one as soon as nothing has been said on it for a moment, with what end writes to the
// client.
func quietAfter(t *testing.T, address string, end func(net.Conn) error) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is on this machine
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer client.Close() //nolint:errcheck // it is to end
				server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
				if !assert.NoError(t, err) {
					return
				}
				conns.Go(func() { _, _ = io.Copy(server, client) })
				defer server.Close() //nolint:errcheck // it is to end
				buf := make([]byte, 1<<16)
				for answered := false; ; {
					n, err := server.Read(buf)
					if errors.Is(err, os.ErrDeadlineExceeded) {
						if end != nil {
							assert.NoError(t, end(client))
						}
						return
					}
					if _, wrote := client.Write(buf[:n]); err != nil || wrote != nil {
						return
					}
					if answered = answered || bytes.Contains(buf[:n], []byte("ProxyConfig")); answered { // the response, with its type
						_ = server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		conns.Wait()
	})
	return lis.Addr().String()
}

// TestDoctor_TLSFiles has a CA file of a source missing.
func TestDoctor_TLSFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/t.yaml", "stateDir: off\nconfigSources: [{name: c, address: 'consul+https://h:1', tlsSettings: {mode: SIMPLE, "+
		"caCertificates: nosuch.pem}}]\n")
	got := command(t, "doctor", "--offline", "-c", dir+"/t.yaml")
	require.Contains(t, got.stdout, "source c: tlsSettings.caCertificates: open "+dir+"/nosuch.pem: ")
}
