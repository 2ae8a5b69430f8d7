package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"tributary/cmd/internal/check"
)

// examined returns the results of doctor, by check.
func examined(t *testing.T, args ...string) (code int, results map[string][]check.Result) {
	t.Helper()
	result := command(t, append([]string{"doctor", "-o", "json"}, args...)...)
	var list []check.Result
	require.NoError(t, json.Unmarshal([]byte(result.stdout), &list), result.stderr)
	results = make(map[string][]check.Result)
	for _, f := range list {
		results[f.Check] = append(results[f.Check], f)
		if f.Severity == check.Error || f.Severity == check.Warning {
			assert.NotEmpty(t, f.Fix, f.Message)
		}
	}
	return result.code, results
}

// requireResult asserts that there is such a finding.
func requireResult(t *testing.T, results map[string][]check.Result, check string, severity check.Severity, part string) {
	t.Helper()
	for _, f := range results[check] {
		if f.Severity == severity && strings.Contains(f.Message, part) {
			return
		}
	}
	assert.Fail(t, "no such finding", "%s %s %s in %+v", check, severity, part, results[check])
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
	_, results := examined(t, "-c", dir+"/tributary.yaml")
	require.NotEmpty(t, results["sources"])
	assert.Contains(t, results["sources"][0].Fix, "the right to read it")
	require.NoError(t, os.Chmod(dir+"/tributary.yaml", 0))
	_, results = examined(t, "-c", dir+"/tributary.yaml")
	assert.Contains(t, results["configuration"][0].Fix, "the right to read it")
}

// TestDoctorThrough holds an idle stream open through a proxy, like one between an istiod and tributary.
func TestDoctorThrough(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80))
	text := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: 'off'\nconfigSources: [{address: 'fs://./rules'}]\n"
	write(t, dir+"/tributary.yaml", text)
	s, second := serving(t, "-c", dir+"/tributary.yaml"), serving(t, "-c", dir+"/tributary.yaml")
	s.awaitReady(t)
	second.awaitReady(t)
	write(t, dir+"/tributary.yaml", strings.Replace(text, "admin: '127.0.0.1:0'", "admin: '"+s.admin+"'", 1))
	through := func(address, idle string) (int, map[string][]check.Result) {
		return examined(t, "-c", dir+"/tributary.yaml", "--through", address, "--idle", idle)
	}

	code, results := through("xds://"+s.xds, "10ms")
	assert.Zero(t, code)
	assert.Equal(t, []check.Result{{Check: "keepalive", Severity: check.Fine, Message: s.xds + ": an idle stream stood for 10ms"}},
		results["keepalive"])

	_, results = through(second.xds, "10ms")
	requireResult(t, results, "keepalive", check.Warning, "is not the server that runs with "+dir)

	nobody := quietAfter(t, s.xds, nil)
	code, results = through(nobody, "1h")
	assert.Equal(t, 3, code)
	requireResult(t, results, "keepalive", check.Error, nobody+": after")
	requireResult(t, results, "keepalive", check.Error, "an idle stream was ended")
	assert.Contains(t, results["keepalive"][0].Fix, "raise the idle timeout")

	strict := quietAfter(t, s.xds, func(conn net.Conn) error {
		return http2.NewFramer(conn, nil).WriteGoAway(1, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
	})
	code, results = through(strict, "1h")
	assert.Equal(t, 3, code)
	requireResult(t, results, "keepalive", check.Error, "keepalive pings are refused")
	assert.Contains(t, results["keepalive"][0].Fix, "allow a ping every 30 s")

	code, results = through(s.admin, "1h")
	assert.Equal(t, 3, code)
	requireResult(t, results, "keepalive", check.Error, "it may be the admin port")
	_, results = examined(t, "-c", dir+"/tributary.yaml", "--through", s.xds, "--offline")
	requireResult(t, results, "keepalive", check.Skipped, "--through")
}

// quietAfter passes connections on to address. It ends each one that was idle for a moment, after end has written to
// the client.
func quietAfter(t *testing.T, address string, end func(net.Conn) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is on this machine
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := listener.Accept()
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
		_ = listener.Close()
		conns.Wait()
	})
	return listener.Addr().String()
}
