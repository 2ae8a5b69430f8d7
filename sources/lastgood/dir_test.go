package lastgood

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeftovers removes old files of removed sources, crashes and damages, and no others.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	now := time.Now().UTC()
	long, lately := now.Add(-365*24*time.Hour), now.Add(-time.Hour)
	unused := []string{
		"gone.db", "gone.db.new", "used.db.new", "gone.db.damaged-" + long.Format(damagedTime),
		"used.db.damaged-" + long.Format(damagedTime),
		"gone.db.db", "gone.dbs.db.new", "orders.db.db.damaged-" + long.Format(damagedTime), "orders.db.db.new",
	}
	stays := []string{
		"used.db", "used.db.damaged-" + lately.Format(damagedTime), "used.db.damaged-byhand",
		"used.db.backup", "notes",
		"orders.db.db", "orders.db.db.damaged-" + lately.Format(damagedTime),
	}
	for _, name := range slices.Concat(unused, stays) {
		p := filepath.Join(dir, "sources", name)
		require.NoError(t, os.WriteFile(p, make([]byte, 100), 0o600))
		require.NoError(t, os.Chtimes(p, long, long))
	}
	p := filepath.Join(dir, "sources", "making.db.new")
	require.NoError(t, os.WriteFile(p, nil, 0o600))
	stays = append(stays, "making.db.new")

	require.NoError(t, d.RemoveUnused([]string{"used", "orders.db"}, now.Add(-7*24*time.Hour)))
	var remaining []string
	entries, err := os.ReadDir(filepath.Join(dir, "sources"))
	require.NoError(t, err)
	for _, e := range entries {
		remaining = append(remaining, e.Name())
	}
	require.ElementsMatch(t, stays, remaining)
}
