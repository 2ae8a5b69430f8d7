package relay

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/internal/handover"
	"tributary/internal/logtest"
)

// gone is a predecessor that ends before it has handed anything over.
type gone struct{ err error }

func (gone) Tell(handover.Step) error                     { return nil }
func (g gone) Await(context.Context, handover.Step) error { return g.err }

// Who takes over ends with the one before it, also while there is still something to read, which may be for ever: it would keep ports that it does not serve.
func TestASuccessorDoesNotOutliveWhomItSucceeds(t *testing.T) {
	dir := t.TempDir()
	configured(t, dir, "name: never, address: 'xds://127.0.0.1:1'")
	cfg, err := config.Load(dir + "/tributary.yaml")
	require.NoError(t, err)
	before := gone{errors.New("it has ended")}
	r, err := Open(t.Context(), cfg, Options{Version: "test", Predecessor: before, Log: slog.New(slog.NewTextHandler(new(logtest.Buffer), nil))})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.ErrorIs(t, r.Run(ctx), before.err)
}

// Who asks for a reload while another process takes over is told at once: nobody reads the configuration then.
func TestAReloadWhileAnotherProcessTakesOverIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/one/a.yaml", entry("shop", "a", 80))
	configured(t, dir, "name: a, address: 'fs://./one'")
	r := start(t, dir)
	r.awaitReady(t)
	r.succession.idle()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := r.Reload(ctx)
	require.ErrorIs(t, err, errReadsNoMore)
}
