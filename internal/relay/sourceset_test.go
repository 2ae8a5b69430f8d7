package relay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestPrecedence_ReachesView(t *testing.T) {
	t.Parallel()
	f := &activeSource{config: config.Source{Name: "a", Precedence: 7}}
	require.Equal(t, 7, f.input().Precedence)
}

// TestUnusedFiles_StayForAWeek checks the stored state of sources that were removed from the configuration while no
// process ran.
func TestUnusedFiles_StayForAWeek(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, "one/f.yaml: shop/x")
	configured(t, dir, "name: a, address: 'fs://./one'")
	const day = 24 * time.Hour
	path := func(name string) string { return filepath.Join(dir, "state", "sources", name) }
	for name, duration := range map[string]time.Duration{
		"lately.db": 7*day - time.Hour, "long.db": 7*day + time.Hour, "half.db.new": day,
		"old.db.new": 8 * day,
	} {
		write(t, path(name), "x")
		written := time.Now().Add(-duration)
		require.NoError(t, os.Chtimes(path(name), written, written))
	}
	aside := func(age time.Duration) string {
		return "a.db.damaged-" + time.Now().Add(-age).UTC().Format("20060102T150405.000000000Z")
	}
	lately, long := aside(6*day), aside(8*day)
	write(t, path(lately), "x")
	write(t, path(long), "x")
	startReady(t, dir)
	removed := func(name string) bool {
		_, err := os.Stat(path(name))
		return os.IsNotExist(err)
	}
	await(t, func() bool { return removed("long.db") && removed(long) && removed("old.db.new") })
	for _, name := range []string{"lately.db", "half.db.new", lately} {
		require.FileExists(t, path(name))
	}
}
