package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is the user of the image: the user and group with this number in distroless images, too.
const nobody = "65532:65532"

// platformImage is the image for one platform.
type platformImage struct {
	target target
	image  v1.Image
}

// image makes the image of the program alone: it needs no other file. Certificates of CAs are mounted where they are
// needed.
func (r *release) image(t target, program string) (platformImage, error) {
	content, err := os.ReadFile(program) //nolint:gosec // just built
	if err != nil {
		return platformImage{}, err
	}
	var files bytes.Buffer
	w := tarWriter{tar.NewWriter(&files), r}
	if err := w.write("usr/bin/tributary", 0o755, content); err != nil {
		return platformImage{}, err
	}
	if err := w.Close(); err != nil {
		return platformImage{}, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return platformImage{}, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "packaging"},
	})
	if err != nil {
		return platformImage{}, err
	}
	image, err = mutate.ConfigFile(image, r.config(t, image))
	return platformImage{t, image}, err
}

// config is how a container of image runs. Its ports are reached from outside, so that it listens everywhere.
func (r *release) config(t target, image v1.Image) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		panic(err) // it was made here
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = t.os, t.arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/tributary"}, Cmd: []string{"serve", "-c", "/etc/tributary/tributary.yaml"},
		User: nobody, WorkingDir: "/", ExposedPorts: map[string]struct{}{"16010/tcp": {}, "16014/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "tributary", "org.opencontainers.image.version": r.plainVersion(),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return config
}

// index writes the images as one OCI layout in a .tar, which docker load, podman load and skopeo take.
func (r *release) index(images []platformImage, work string) error {
	if len(images) == 0 {
		return nil
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: p.image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: p.target.os, Architecture: p.target.arch},
		}})
	}
	// The index of a layout has one entry, the image of all platforms under its name.
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
			Annotations: map[string]string{
				"org.opencontainers.image.ref.name": r.plainVersion(),
				"io.containerd.image.name":          "tributary:" + r.plainVersion(),
			},
		}})
	dir := filepath.Join(work, "image")
	if _, err := layout.Write(dir, named); err != nil {
		return err
	}
	var out bytes.Buffer
	w := tarWriter{tar.NewWriter(&out), r}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // in the order of names
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return w.add(file{from: path, to: filepath.ToSlash(name), mode: 0o644})
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	//nolint:gosec // it is to be handed out
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("tributary_%s_oci.tar", r.plainVersion())), out.Bytes(), 0o644)
}
