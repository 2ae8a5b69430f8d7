package e2e

import (
	"context"
	"errors"
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
type watch func() (answers int, first error)

// guard begins to look at istiod, every few milliseconds, for a moment at which one of the objects is missing or changed.
func guard(t *testing.T, istiod *fixture.Istiod, want fixture.Objects) watch {
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

// look starts to poll istiod, every few milliseconds, for a moment with wrong objects, or without an answer.
func look(t *testing.T, istiod *fixture.Istiod, wrong func(got fixture.Objects) error) watch {
	t.Helper()
	return watching(t, 5*time.Millisecond, func(ctx context.Context) error {
		got, err := istiod.Configs(ctx)
		if err != nil {
			return errors.New(err.Error())
		}
		return wrong(got)
	})
}

// stop ends the looking, fails the test if anything was ever wrong, and says how often it looked.
func (w watch) stop(t *testing.T) int {
	t.Helper()
	polls, err := w()
	require.NoError(t, err, "istiod lost something")
	require.Positive(t, polls)
	return polls
}
