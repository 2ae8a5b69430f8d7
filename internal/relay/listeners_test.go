package relay

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
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
