package e2e

import (
	"os"
	"strconv"
	"testing"

	"tributary/e2e/fixture"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fixture.StopIstioCluster()
	os.Exit(code)
}

// isNightly says whether the tests may take minutes each.
var isNightly = os.Getenv("E2E_NIGHTLY") != ""

// nightly skips a test by day.
func nightly(t *testing.T, cost string) {
	t.Helper()
	if !isNightly {
		t.Skip(cost + "; E2E_NIGHTLY=1 runs it")
	}
}

// byNight returns one of two values.
func byNight[T any](usual, night T) T {
	if isNightly {
		return night
	}
	return usual
}

// number is the value of a variable of the environment.
func number(name string, standard uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return standard
}
