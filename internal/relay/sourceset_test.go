package relay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestPrecedenceReachesTheView(t *testing.T) {
	f := &activeSource{config: config.Source{Name: "a", Precedence: 7}}
	require.Equal(t, 7, f.input().Precedence)
}

// TestLeftoversStayForAWeek has what sources have left that were taken out of the configuration while nothing ran.
func TestLeftoversStayForAWeek(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/one/f.yaml", entry("shop", "x", 80))
	configured(t, dir, "name: a, address: 'fs://./one'"+quick)
	const day = 24 * time.Hour
	at := func(name string) string { return filepath.Join(dir, "state", "sources", name) }
	for name, age := range map[string]time.Duration{
		"lately.db": 7*day - time.Hour, "long.db": 7*day + time.Hour, "half.db.new": day,
		"old.db.new": 8 * day,
	} {
		write(t, at(name), "x")
		written := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(at(name), written, written))
	}
	aside := func(age time.Duration) string {
		return "a.db.damaged-" + time.Now().Add(-age).UTC().Format("20060102T150405.000000000Z")
	}
	lately, long := aside(6*day), aside(8*day)
	write(t, at(lately), "x")
	write(t, at(long), "x")
	r := start(t, dir)
	r.awaitReady(t)
	gone := func(name string) bool {
		_, err := os.Stat(at(name))
		return os.IsNotExist(err)
	}
	eventually(t, func() error {
		if !gone("long.db") || !gone(long) || !gone("old.db.new") {
			return errNot
		}
		return nil
	})
	for _, name := range []string{"lately.db", "half.db.new", lately} {
		require.FileExists(t, at(name))
	}
}
