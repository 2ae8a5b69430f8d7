package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

var (
	commit = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	host   = []target{{"linux", "amd64"}}
)

// Equal files give equal releases, byte for byte, in any folder.
func TestReproducible(t *testing.T) {
	original := release{source: "..", out: t.TempDir(), version: "v1.2.3", date: commit}
	require.NoError(t, original.make(t.Context(), host))
	rebuilt := release{source: copied(t), out: t.TempDir(), version: "v1.2.3", date: commit}
	require.NoError(t, rebuilt.make(t.Context(), host))
	want, got := contents(t, original.out), contents(t, rebuilt.out)
	require.Len(t, want, 6, "archive, deb, rpm, SBOM, image, checksums")
	for name, content := range want {
		require.True(t, bytes.Equal(content, got[name]), "%s differs", name)
	}
	t.Run("checksums", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = original.out
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	t.Run("image", func(t *testing.T) { imageIsGood(t, want["tributary_1.2.3_oci.tar"]) })
	t.Run("SBOM", func(t *testing.T) {
		var bom cyclonedx.BOM
		require.NoError(t, json.Unmarshal(want["tributary_1.2.3_linux_amd64.cdx.json"], &bom))
		var names []string
		for _, c := range *bom.Components {
			names = append(names, c.Name)
		}
		require.Subset(t, names, []string{"stdlib", "google.golang.org/grpc", "github.com/envoyproxy/go-control-plane/envoy", "istio.io/api"})
	})
}

func imageIsGood(t *testing.T, content []byte) {
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.Equal(t, commit, h.ModTime.UTC())
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		f, err := os.Create(path)
		require.NoError(t, err)
		_, err = io.Copy(f, r)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	named, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	require.NoError(t, validate.Index(named))
	manifest, err := named.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	platformsIndex, err := named.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	platforms, err := platformsIndex.IndexManifest()
	require.NoError(t, err)
	require.Len(t, platforms.Manifests, len(host))
	require.Equal(t, "amd64", platforms.Manifests[0].Platform.Architecture)
	image, err := platformsIndex.Image(platforms.Manifests[0].Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, nobody, config.Config.User)
}

// Versions of packages are in the order of versions, and those of no tag before all.
func TestPackageVersions(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-4-gabcdef": "1.2.3+4+gabcdef", "1234567": "0~20260102030405+1234567",
		"abcdef0-dirty": "0~20260102030405+abcdef0+dirty",
	} {
		require.Equal(t, want, (&release{version: version, date: commit}).packageVersion())
	}
}

// copied returns a folder with the files of the project.
func copied(t *testing.T) string {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(string(list), "\x00"), "\x00") {
		if name != "bench/README.md" && (strings.HasPrefix(name, "e2e/") || strings.HasPrefix(name, "bench/")) {
			continue
		}
		content, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	return dir
}

// contents returns the files in dir by their names.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name.Name()))
		require.NoError(t, err)
		files[name.Name()] = content
	}
	return files
}
