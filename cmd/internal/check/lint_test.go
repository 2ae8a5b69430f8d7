package check_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/cmd/internal/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	good = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: good, namespace: shop}
spec: {hosts: [good.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}
`
	badPort = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: bad, namespace: shop}
spec: {hosts: [bad.example], ports: [{number: 80000, name: http, protocol: HTTP}], resolution: NONE}
`
	badField = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front}
spec: {severs: []}
`
)

// tree writes files and makes their directory the working directory, so that places are short.
func tree(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	t.Chdir(dir)
}

func lines(l *check.Linter) []string {
	var out []string
	for _, f := range l.Findings {
		out = append(out, f.String())
	}
	return out
}

func TestPath_ReservedCharacters(t *testing.T) {
	tree(t, map[string]string{"100% sure?#/a.yaml": badPort})
	var linter check.Linter
	require.NoError(t, linter.Path(t.Context(), "100% sure?#"))
	require.Len(t, linter.Findings, 1)
	assert.Equal(t, "100% sure?#/a.yaml:4:47", linter.Findings[0].Place)

	linter = check.Linter{}
	require.NoError(t, linter.Path(t.Context(), filepath.Join(must(os.Getwd()), "100% sure?#", "a.yaml")))
	assert.Len(t, linter.Findings, 1)
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

func TestPath_Unreadable(t *testing.T) {
	tree(t, map[string]string{"a.yaml": good})
	var linter check.Linter
	require.ErrorContains(t, linter.Path(t.Context(), "missing"), "missing does not exist")

	require.NoError(t, os.Symlink("nowhere", "rules.yaml"))
	require.NoError(t, linter.Path(t.Context(), "."))
	require.Len(t, linter.Findings, 1)
	assert.Contains(t, linter.Findings[0].String(), "rules.yaml")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, linter.Path(ended, "a.yaml"), context.Canceled)
}
