package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Objects of an earlier run are served at once, but the start, with rare garbage collection, lasts until the sources
// were read.
func TestServe_StartupEndsWithSync(t *testing.T) {
	t.Setenv("GOGC", "")
	percent := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	usual := percent()
	becomes := func(want uint64) {
		t.Helper()
		eventually(t, func() error {
			if got := percent(); got != want {
				return fmt.Errorf("GOGC is %d, not %d", got, want)
			}
			return nil
		})
	}
	dir, state := t.TempDir()+"/rules", t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	args := append(served(dir), "--state-dir", state)
	t.Run("before", func(t *testing.T) {
		serving(t, args...).awaitReady(t)
		becomes(usual)
	})
	require.NoError(t, os.Rename(dir, dir+".moved"))
	t.Run("read late", func(t *testing.T) {
		s := serving(t, args...)
		s.awaitReady(t)
		eventually(t, func() error {
			if _, body := s.page(t, "/debug/sources"); !strings.Contains(body, `"unreachable"`) {
				return errors.New(body)
			}
			return nil
		})
		require.Greater(t, percent(), usual)
		require.NoError(t, os.Rename(dir+".moved", dir))
		becomes(usual)
	})
}
