package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// name is that of an artifact for t.
func (r *release) name(t target, suffix string) string {
	return filepath.Join(r.out, fmt.Sprintf("tributary_%s_%s_%s%s", r.plainVersion(), t.os, t.arch, suffix))
}

// plainVersion is the version as packages have it, without the v.
func (r *release) plainVersion() string { return strings.TrimPrefix(r.version, "v") }

// archive writes a .tar.gz with the program and its files in one folder.
func (r *release) archive(t target, program string, extras []file) error {
	var tarball bytes.Buffer
	w := tarWriter{tar.NewWriter(&tarball), r}
	folder := fmt.Sprintf("tributary_%s_%s_%s/", r.plainVersion(), t.os, t.arch)
	for _, f := range slices.Concat([]file{{from: program, to: "tributary", mode: 0o755}}, inArchive(extras)) {
		f.to = folder + f.to
		if err := w.add(f); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	packed, err := zipped(tarball.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(r.name(t, ".tar.gz"), packed, 0o644) //nolint:gosec // it is to be handed out
}

// inArchive moves files to the usual places in an unpacked archive.
func inArchive(extras []file) []file {
	files := slices.DeleteFunc(slices.Clone(extras), func(f file) bool { return filepath.Base(f.to) == "copyright" }) // it is the LICENSE
	for i, f := range files {
		switch dir := filepath.Dir(f.to); {
		case strings.HasPrefix(dir, "usr/share/man"):
			files[i].to = "man/" + filepath.Base(f.to)
		case strings.HasPrefix(dir, "usr/share/doc"):
			files[i].to = strings.TrimPrefix(f.to, "usr/share/doc/tributary/")
		case strings.HasPrefix(dir, "usr/share"):
			files[i].to = "completions/" + filepath.Base(f.to)
		case strings.HasPrefix(dir, "usr/lib/systemd"):
			files[i].to = "systemd/" + filepath.Base(f.to)
		default:
			files[i].to = filepath.Base(f.to)
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.to, b.to) })
	return files
}

// tarWriter writes files that are of root and of the release's date.
type tarWriter struct {
	*tar.Writer
	r *release
}

func (w tarWriter) add(f file) error {
	content, err := os.ReadFile(f.from)
	if err != nil {
		return err
	}
	return w.write(f.to, f.mode, content)
}

func (w tarWriter) write(name string, mode os.FileMode, content []byte) error {
	if err := w.WriteHeader(&tar.Header{
		Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: w.r.date, Format: tar.FormatPAX, Typeflag: tar.TypeReg,
	}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

func zipped(content []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(content); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// checksums writes SHA256SUMS, as sha256sum -c reads it.
func (r *release) checksums() error {
	names, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range names {
		f, err := os.Open(filepath.Join(r.out, name.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		_ = f.Close() // it was read
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", h.Sum(nil), name.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644) //nolint:gosec // it is to be handed out
}
