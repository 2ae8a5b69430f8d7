package relay

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/internal/testutil"
)

func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ configured, descriptors, want int }{
		{0, -1, -1},
		{100, -1, 100},
		{-1, -1, -1},
		{0, 1 << 20, 1<<20 - 128},
		{500, 1 << 20, 500},
		{-1, 1 << 20, 1<<20 - 128},
		{0, 1024, 896},
		{2000, 1024, 896},
		{0, 100, 50},
	} {
		require.Equal(t, c.want, connectionLimit(config.Limits{Connections: c.configured}, c.descriptors,
			slog.New(slog.DiscardHandler)), "%+v", c)
	}
}

// stuckListener is a listener that cannot be closed.
type stuckListener struct{ net.Listener }

func (stuckListener) Close() error { return errors.New("stuck") }

// A socket that nothing uses does not prevent a start, also if it stays open.
func TestUnusedSocket_IsReported(t *testing.T) {
	t.Parallel()
	unused, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer unused.Close() //nolint:errcheck // at the end of the test
	var log testutil.Buffer
	ports := &listeners{log: slog.New(slog.NewTextHandler(&log, nil))}
	cfg := &config.Config{Listen: config.Listen{XDS: config.ListenOff, Admin: "127.0.0.1:0"}}
	require.NoError(t, ports.open(t.Context(), cfg, map[string]net.Listener{"metrics": stuckListener{unused}}))
	require.NoError(t, ports.admin.Close())
	require.Contains(t, log.String(), "a socket of the service manager is not used")
	require.Contains(t, log.String(), `msg="an unused socket cannot be closed" name=metrics err=stuck`)
}
