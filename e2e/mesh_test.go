package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// mesh is a tributary that serves a folder to clients that must not reject anything.
type mesh struct {
	*fixture.Tributary
	dir string
}

// startMesh serves a folder with a first file, besides what other sources have.
func startMesh(t *testing.T, name, content string, others ...fixture.ConfigSource) *mesh {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, name, content)
	return &mesh{fixture.StartTributary(t, append([]fixture.ConfigSource{fixture.Files("mesh", dir)}, others...)...), dir}
}

// write makes content that of a file of the folder.
func (m *mesh) write(t *testing.T, name, content string) {
	t.Helper()
	write(t, m.dir, name, content)
}

// rejectedNothing fails the test if a client rejected something.
func (m *mesh) rejectedNothing(t *testing.T) {
	t.Helper()
	require.Zero(t, m.Metric(t, "tributary_xds_nacks_total", ""), "a client rejected something")
}
