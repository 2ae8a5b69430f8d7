package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// The service manager gets all notifications, and the sockets that it holds are served: a client that connects while
// the program restarts waits there.
func TestUnderAServiceManager(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/rules", 0o755))
	write(t, dir+"/rules/reviews.yaml", entry("reviews", 80))
	write(t, dir+"/tributary.yaml", "listen: {xds: 'nowhere.invalid:1', admin: '127.0.0.1:0'}\nstateDir: off\nconfigSources: [{address: "+
		"'fs://./rules', name: files}]\n")
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer socket.Close() //nolint:errcheck // of a test
	held, err := socket.(*net.TCPListener).File()
	require.NoError(t, err)
	defer held.Close() //nolint:errcheck // of a test
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/notify", Net: "unixgram"})
	require.NoError(t, err)
	defer notices.Close() //nolint:errcheck // of a test
	await := func(part string) {
		t.Helper()
		require.NoError(t, notices.SetReadDeadline(time.Now().Add(patience)))
		for buf := make([]byte, 4096); ; {
			n, err := notices.Read(buf)
			require.NoError(t, err, "waiting for %s", part)
			if strings.Contains(string(buf[:n]), part) {
				return
			}
		}
	}
	start := func() *child {
		return prepared(t, dir, func(cmd *exec.Cmd) {
			cmd.ExtraFiles = []*os.File{held}
			cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+dir+"/notify", "WATCHDOG_USEC=200000", "LISTEN_FDS=1", "LISTEN_FDNAMES=xds")
		}, "sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", os.Args[0], "serve", "-c", "tributary.yaml", "--log-format", "json")
	}

	p := start()
	await("READY=1")
	await("STATUS=objects 1, sources 1, clients 0")
	await("WATCHDOG=1")
	server := listening(t, &p.stderr)
	assert.Equal(t, socket.Addr().String(), server.xds, "the socket counts, and not the address in the file")
	got := command(t, "get", "se", "-A", "-o", "yaml", "--server", server.xds)
	require.Zero(t, got.code, got.stderr)
	assert.Contains(t, got.stdout, "reviews.example")

	p.signal(t, syscall.SIGHUP)
	await("RELOADING=1\nMONOTONIC_USEC=")
	await("READY=1")
	p.signal(t, syscall.SIGTERM)
	await("STOPPING=1")
	require.Zero(t, p.await(t, patience))

	late, answer := make(chan int, 1), new(testutil.Buffer)
	go func() {
		late <- run(t.Context(), []string{"get", "se", "-A", "-o", "yaml", "--server", server.xds}, answer, answer)
	}()
	start()
	assert.Zero(t, <-late, answer)
	assert.Contains(t, answer.String(), "reviews.example")
}

func TestServe_UnusedSockets(t *testing.T) {
	dir := t.TempDir()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer socket.Close() //nolint:errcheck // of a test
	held, err := socket.(*net.TCPListener).File()
	require.NoError(t, err)
	defer held.Close() //nolint:errcheck // of a test
	child := prepared(t, dir, func(cmd *exec.Cmd) {
		cmd.ExtraFiles = []*os.File{held}
		cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "LISTEN_FDNAMES=tributary.socket")
	}, append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", os.Args[0], "serve", "--log-format", "json"}, served(dir)...)...)
	s := listening(t, &child.stderr)
	assert.NotEqual(t, socket.Addr().String(), s.xds)
	assert.Contains(t, child.stderr.String(), `"name":"tributary.socket"`)
	assert.Contains(t, child.stderr.String(), "FileDescriptorName=")
}
