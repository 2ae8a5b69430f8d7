package e2e

import (
	"os"
	"testing"

	"tributary/e2e/fixture"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fixture.StopIstioCluster()
	os.Exit(code)
}
