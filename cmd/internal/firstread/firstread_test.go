package firstread_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/cmd/internal/firstread"
	"tributary/sources/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with blanks")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(dir+"/a.yaml", []byte("kind: Gateway\napiVersion: networking.istio.io/v1\nmetadata: {name: a}\nspec: {}\n---\n["), 0o644))
	contents, degraded, err := firstread.Files(t.Context(), firstread.Address(dir), file.Settings{})
	require.NoError(t, err)
	assert.Empty(t, degraded)
	require.Len(t, contents, 1)
	assert.Len(t, contents[0].Resources, 1)
	assert.Len(t, contents[0].Rejects, 1)
}

func TestNothingThere(t *testing.T) {
	missing := t.TempDir() + "/missing"
	_, _, err := firstread.Files(t.Context(), firstread.Address(missing), file.Settings{})
	require.ErrorContains(t, err, missing)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = firstread.Files(ctx, firstread.Address(t.TempDir()), file.Settings{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAddress(t *testing.T) {
	assert.Equal(t, "fs:///a%20b/c", firstread.Address("/a b/c"))
	assert.Equal(t, "fs://./rules", firstread.Address("rules"))
}
