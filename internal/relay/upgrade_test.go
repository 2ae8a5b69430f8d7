package relay

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/internal/process"
	"tributary/internal/testutil"
	"tributary/server/admin"
	"tributary/sources"
	"tributary/sources/lastgood"
)

// gone is a predecessor that ends before it has handed anything over.
type gone struct{}

func (gone) Exchange(context.Context, process.Step, process.Step) error { return process.ErrGone }
func (gone) Content() []string                                          { return nil }

// A process whose predecessor ends early serves the ports in its place, also while a source cannot be read, as soon as the state directory
// is free: of a process that is killed the system closes one file after another.
func TestASuccessorGoesOnInPlaceOfAPredecessorThatEnded(t *testing.T) {
	dir := t.TempDir()
	configured(t, dir, "name: never, address: 'xds://127.0.0.1:1'")
	cfg, err := config.Load(dir + "/tributary.yaml")
	require.NoError(t, err)
	cfg.StateDir = dir + "/state"
	theirs, err := lastgood.Open(cfg.StateDir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	log := new(testutil.Buffer)
	r, err := Open(t.Context(), cfg, Options{Version: "test", Predecessor: gone{}, Log: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	eventually(t, func() error {
		if !strings.Contains(log.String(), "the previous process has ended") {
			return errNot
		}
		return nil
	})
	require.NoError(t, theirs.Close())
	select {
	case <-r.upgrades.serving:
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Error("it does not serve")
	}
	cancel()
	require.NoError(t, <-ended)
}

// During a pause a reload and a release are refused, and the sources keep their state and metrics. After it, everything goes on.
func TestPause(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/one/a.yaml", entry("shop", "a", 80))
	configured(t, dir, "name: a, address: 'fs://./one'")
	r := start(t, dir)
	r.awaitReady(t)
	resume := r.pause(t.Context())
	_, err := r.reloader.Reload(t.Context(), "the test")
	require.ErrorIs(t, err, admin.ErrUpgrading)
	_, _, err = r.supervisor.Release("a", "", "somebody")
	require.ErrorIs(t, err, sources.ErrPaused)
	require.ErrorIs(t, r.supervisor.Reconfigure(nil), sources.ErrPaused)
	write(t, dir+"/one/b.yaml", entry("shop", "b", 80))
	st := r.admin.Status()
	require.Equal(t, "healthy", st.Sources[0].State)
	require.Equal(t, 1, st.Objects)
	resume()
	eventually(t, func() error {
		if n := r.admin.Status().Objects; n != 2 {
			return fmt.Errorf("%d objects", n)
		}
		return nil
	})
	_, err = r.reloader.Reload(t.Context(), "the test")
	require.NoError(t, err)
}

// A process that another one has taken over from ends, though what it began with of a former configuration is not forgotten yet.
func TestAPausedProcessEnds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/one/a.yaml", entry("shop", "a", 80))
	configured(t, dir, "name: a, address: 'fs://./one'")
	r := start(t, dir)
	r.awaitReady(t)
	r.stop()
	require.NoError(t, os.RemoveAll(dir+"/one"))
	configured(t, dir, "name: a, address: 'fs://./one', transform: {labels: {add: {team: x}}}")
	r = start(t, dir)
	r.awaitReady(t)
	eventually(t, func() error {
		r.sources.mu.Lock()
		defer r.sources.mu.Unlock()
		select {
		case <-r.sources.oldGone:
		default:
			if len(r.sources.activations) > 0 {
				return errNot
			}
		}
		return nil
	})
	r.pause(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.stop()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}
