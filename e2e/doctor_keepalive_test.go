package e2e

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
	"tributary/internal/xdstest"
)

// TestDoctorKeepalive shows that doctor's idle stream stands at tributary for as long as it is to, and that it finds a
// gRPC server with default settings, which refuses istiod's pings, and something in between that forgets connections.
func TestDoctorKeepalive(t *testing.T) {
	t.Parallel()
	nightly(t, "takes two minutes")
	dir := t.TempDir()
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
	tributary.AwaitReady(t)
	config := testutil.WriteFile(t, t.TempDir(), "tributary.yaml",
		"listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nconfigSources: [{address: 'fs://"+dir+
			"'}]\n")

	var looking sync.WaitGroup
	for _, c := range []struct {
		address, says string
		code          int
	}{
		{tributary.XDS, tributary.XDS + ": an idle stream stood for 2m10s", 0},
		{(&xdstest.Server{SotW: xdstest.NewContent().SotW}).Serve(t), "keepalive pings are refused", 3},
		{forgetful(t, tributary.XDS), "after 40s a keepalive ping was not answered", 3},
	} {
		looking.Go(func() {
			out, code := fixture.Run(t, fixture.TributaryBinary(t), "doctor", "-c", config, "--through", c.address)
			assert.Contains(t, out, c.says)
			assert.Equal(t, c.code, code)
		})
	}
	looking.Wait()
}

// forgetful forwards the bytes of a connection, and drops all bytes after a second of silence.
func forgetful(t *testing.T, address string) string {
	t.Helper()
	lis, err := net.Listen("tcp4", fixture.Loopback(fixture.FreePort(t)))
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", address)
			if !assert.NoError(t, err) {
				_ = client.Close()
				return
			}
			var vanish atomic.Bool
			silence := time.AfterFunc(time.Second, func() { vanish.Store(true) })
			pass := func(to, from net.Conn) {
				defer from.Close() //nolint:errcheck // it is to end
				buf := make([]byte, 1<<16)
				for {
					n, err := from.Read(buf)
					if err != nil && vanish.Load() {
						return // the other side does not learn that, either
					}
					if err != nil {
						_ = to.Close()
						return
					}
					if vanish.Load() {
						continue
					}
					if _, err := to.Write(buf[:n]); err != nil {
						return
					}
					silence.Reset(time.Second)
				}
			}
			conns.Go(func() { pass(server, client) })
			conns.Go(func() { pass(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		conns.Wait()
	})
	return lis.Addr().String()
}
