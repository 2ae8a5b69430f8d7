package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestRestart_LosesNoObject shows the most important rule: istiod loses no object while tributary is down, or before it
// has read everything after its start. Changes of the meantime arrive.
func TestRestart_LosesNoObject(t *testing.T) {
	t.Parallel()
	const syncTime = 5 * time.Second
	rules, slow := t.TempDir(), filepath.Join(t.TempDir(), "slow")
	write(t, rules, "kept.yaml", serviceEntry("kept", 80))
	require.NoError(t, os.Mkdir(slow, 0o700))
	write(t, slow, "slow.yaml", serviceEntry("slow", 80))
	write(t, slow, "more.yaml", serviceEntry("more", 80))
	unchanged := fixture.ReadObjects(t, rules, slow)
	write(t, rules, "deleted.yaml", serviceEntry("deleted", 80))

	tributary := fixture.StartTributary(t, fixture.Files("rules", rules), fixture.Files("slow", slow))
	istiod := tributary.StartIstiod(t)
	istiod.AwaitFolders(t, rules, slow)
	watch := guard(t, istiod, unchanged)

	tributary.Kill()
	require.NoError(t, os.RemoveAll(tributary.State)) // No saved state is left to serve before the sources are read.
	require.NoError(t, os.Rename(slow, slow+".away"))
	require.NoError(t, os.Remove(filepath.Join(rules, "deleted.yaml")))
	write(t, rules, "added.yaml", serviceEntry("added", 80))

	tributary.Restart(t)
	back := time.Now()
	tributary.AwaitAlive(t)
	// istiod is connected again and waits, since one source is missing.
	tributary.WaitFor(t, syncTime, pageNames(t, tributary, "/debug/syncz", "istiod-e2e"))
	status, body, err := fixture.Get(t.Context(), tributary.URL("/-/ready"))
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "slow", "the page names the source that is not synced")

	time.Sleep(syncTime - time.Since(back)) // The test is about the time that the source takes.
	require.NoError(t, os.Rename(slow+".away", slow))
	tributary.AwaitReady(t)
	istiod.AwaitFolders(t, rules, slow)
	polls := watch.stop(t)
	t.Logf("istiod held everything at each of %d looks", polls)
}

// TestRepeatedKills_KeepObjects shows that istiod reconnects each time, and that a tributary that dies at any moment does no harm.
func TestRepeatedKills_KeepObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "kept.yaml", serviceEntry("kept", 80))
	tributary, istiod := serve(t, dir)
	watch := guard(t, istiod, fixture.ReadObjects(t, dir))
	for port := range 3 {
		tributary.Kill()
		write(t, dir, "other.yaml", serviceEntry("other", 80+port))
		tributary.Restart(t)
		istiod.AwaitFolders(t, dir)
	}
	watch.stop(t)
}

// TestShutdown shows that SIGTERM ends tributary in time and without an error while istiod is connected, and that
// istiod keeps its objects.
func TestShutdown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "kept.yaml", serviceEntry("kept", 80))
	tributary, istiod := serve(t, dir)
	want := fixture.ReadObjects(t, dir)
	istiod.AwaitConfigs(t, want)
	watch := guard(t, istiod, want)
	assert.Zero(t, tributary.Terminate(t, 5*time.Second))
	watch.stop(t)
	istiod.AwaitConfigs(t, want)
}

// watch polls the objects of istiod.
type watch struct {
	cancel   context.CancelFunc
	finished chan struct{}
	polls    int   // Read once done is closed.
	err      error // The first moment at which something was wrong; read once done is closed.
}

// guard begins to look at istiod, every few milliseconds, for a moment at which one of the objects is missing or changed.
func guard(t *testing.T, istiod *fixture.Istiod, want fixture.Objects) *watch {
	t.Helper()
	require.NotEmpty(t, want)
	return look(t, istiod, func(got fixture.Objects) error {
		for key := range got {
			if _, ok := want[key]; !ok {
				delete(got, key) // More than it must have is no loss.
			}
		}
		return want.Diff(got)
	})
}

// look starts to poll istiod, every few milliseconds, for a moment with wrong objects.
func look(t *testing.T, istiod *fixture.Istiod, wrong func(got fixture.Objects) error) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{cancel: cancel, finished: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(w.finished)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			got, err := istiod.Configs(ctx)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				err = wrong(got)
			}
			if err != nil {
				w.err = fmt.Errorf("after %v: %w", time.Since(begin), err)
				return
			}
			w.polls++
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-w.finished })
	return w
}

// stop ends the looking, fails the test if anything was ever wrong, and says how often it looked.
func (w *watch) stop(t *testing.T) (polls int) {
	t.Helper()
	w.cancel()
	<-w.finished
	require.NoError(t, w.err, "istiod lost something")
	require.Positive(t, w.polls)
	return w.polls
}
