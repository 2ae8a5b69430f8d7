package process

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

const patience = 20 * time.Second

// notified is a service manager that takes notes.
type notified struct {
	t    *testing.T
	conn *net.UnixConn
}

func manager(t *testing.T) *notified {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	t.Setenv("NOTIFY_SOCKET", path)
	return &notified{t, conn}
}

// await returns the next message that begins with prefix.
func (n *notified) await(prefix string) string {
	n.t.Helper()
	require.NoError(n.t, n.conn.SetReadDeadline(time.Now().Add(patience)))
	for buf := make([]byte, 4096); ; {
		size, err := n.conn.Read(buf)
		require.NoError(n.t, err, "waiting for %s", prefix)
		if message := string(buf[:size]); strings.HasPrefix(message, prefix) {
			return message
		}
	}
}

func TestStates(t *testing.T) {
	notified := manager(t)
	var buffer testutil.Buffer
	m := ManagerFromEnvironment(buffer.Logger())
	m.Ready()
	require.Equal(t, "READY=1", notified.await("READY"))
	m.Reloading()
	require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*\n?$`, notified.await("RELOADING"))
	m.Ready()
	require.Equal(t, "READY=1", notified.await("READY"))
	m.Stopping()
	require.Equal(t, "STOPPING=1", notified.await("STOPPING"))
	require.Empty(t, buffer.String())
}

func TestStatusIsOneLine(t *testing.T) {
	notified := manager(t)
	m := ManagerFromEnvironment(new(testutil.Buffer).Logger())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- m.Run(ctx, func() string { return "consul is\nunreachable" }, nil)
	}()
	require.Equal(t, "STATUS=consul is unreachable", notified.await("STATUS"))
	stop()
	require.NoError(t, <-done)
}

// The watchdog is fed while all parts live, and not by a clock of its own.
func TestWatchdog(t *testing.T) {
	notified := manager(t)
	t.Setenv("WATCHDOG_USEC", "100000")
	var log testutil.Buffer
	m := ManagerFromEnvironment(log.Logger())
	ctx, stop := context.WithCancel(t.Context())
	done, hang, hangs := make(chan error, 1), make(chan struct{}), make(chan struct{})
	asked := 0
	alive := map[string]func(context.Context) error{
		"well": func(context.Context) error { return nil },
		"ill": func(ctx context.Context) error {
			if asked++; asked < 3 {
				return nil
			}
			if asked == 3 {
				close(hangs)
			}
			select {
			case <-hang:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
	go func() { done <- m.Run(ctx, func() string { return "" }, alive) }()
	notified.await("WATCHDOG=1")
	notified.await("WATCHDOG=1")
	<-hangs
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "parts=[ill]") }, patience, time.Millisecond)
	require.NoError(t, notified.conn.SetReadDeadline(time.Now()))
	_, err := notified.conn.Read(make([]byte, 100))
	require.Error(t, err, "nothing is said while a part hangs")
	close(hang)
	notified.await("WATCHDOG=1") // it goes on
	stop()
	require.NoError(t, <-done)
}

func TestWithoutAManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	var buffer testutil.Buffer
	m := ManagerFromEnvironment(buffer.Logger())
	m.Ready()
	m.Stopping()
	require.NoError(t, m.Run(t.Context(), func() string { panic("nobody listens") }, nil))
	require.Empty(t, buffer.String())
}
