package check_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/check"
	"tributary/sources/file"
)

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with blanks")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(dir+"/a.yaml", []byte("kind: Gateway\napiVersion: networking.istio.io/v1\nmetadata: {name: a}\nspec: "+
		"{}\n---\n["), 0o644))
	contents, degraded, err := check.ReadFiles(t.Context(), check.FileAddress(dir), file.Settings{})
	require.NoError(t, err)
	assert.Empty(t, degraded)
	require.Len(t, contents, 1)
	assert.Len(t, contents[0].Resources, 1)
	assert.Len(t, contents[0].Rejects, 1)
}

func TestReadFiles_Missing(t *testing.T) {
	missing := t.TempDir() + "/missing"
	_, _, err := check.ReadFiles(t.Context(), check.FileAddress(missing), file.Settings{})
	require.ErrorContains(t, err, missing)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = check.ReadFiles(ctx, check.FileAddress(t.TempDir()), file.Settings{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAddress(t *testing.T) {
	assert.Equal(t, "fs:///a%20b/c", check.FileAddress("/a b/c"))
	assert.Equal(t, "fs://./rules", check.FileAddress("rules"))
}
