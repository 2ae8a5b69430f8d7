package layout

import (
	"flag"
	"os"
	"testing"
)

// TestMain skips the package in short runs: no test here has a second goroutine.
func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		return
	}
	os.Exit(m.Run())
}
