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

func TestFindings(t *testing.T) {
	tree(t, map[string]string{
		"rules/a.yaml":     good + "---\n" + badPort,
		"rules/b.yaml":     "---\n" + badField + "---\nkind: [\n",
		"rules/c.yaml":     good,
		"rules/d.yaml":     "\x00\xff binary",
		"rules/readme.txt": "not read",
	})
	var l check.Linter
	require.NoError(t, l.Path(t.Context(), "rules"))
	require.Equal(t, 1, l.Objects)
	found := lines(&l)
	for i, want := range []string{
		"rules/a.yaml:9:47: ServiceEntry shop/bad: port number 80000 must be in the range 1..65535",
		`rules/b.yaml:5:8: Gateway default/front: spec: unknown field "severs"; did you mean "servers"?`,
		"rules/b.yaml:",
		"rules/c.yaml:1: ServiceEntry shop/good: already defined at rules/a.yaml:1, which wins",
		"rules/d.yaml:1",
	} {
		require.Greater(t, len(found), i, "missing: %s", want)
		assert.Contains(t, found[i], want)
		assert.NotContains(t, found[i], "\n")
	}
	assert.Len(t, found, 5)
}

func TestPath_DuplicatesInSeveralPaths(t *testing.T) {
	tree(t, map[string]string{"a.yaml": good, "b.yaml": good})
	var linter check.Linter
	require.NoError(t, linter.Path(t.Context(), "a.yaml"))
	assert.Empty(t, linter.Findings)
	require.NoError(t, linter.Path(t.Context(), "b.yaml"))
	require.NoError(t, linter.Path(t.Context(), filepath.Join(must(os.Getwd()), "a.yaml")))
	assert.Equal(t, []string{"b.yaml:1: ServiceEntry shop/good: warning: also defined at a.yaml:1"}, lines(&linter))
	assert.Equal(t, 1, linter.Objects)
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
