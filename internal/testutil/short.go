package testutil

import "testing"

// OneGoroutine skips a test of long work in one goroutine in short runs: the race detector has nothing to find in it.
func OneGoroutine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long work in one goroutine")
	}
}
