package check

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"time"
)

// BundleFile is one of an archive.
type BundleFile struct {
	Name string
	Text []byte
}

// WriteBundle writes an archive of files below dir, without what secrets knows.
func WriteBundle(w io.Writer, dir string, files []BundleFile, secrets *Secrets, at time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		text := secrets.Hide(f.Text)
		header := &tar.Header{Name: dir + "/" + f.Name, Mode: 0o600, Size: int64(len(text)), ModTime: at, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// Tail is the end of a text, from the beginning of a line, of size bytes at most.
func Tail(in io.ReadSeeker, size int64) ([]byte, error) {
	end, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	from := max(0, end-size)
	if _, err := in.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(in, size))
	if from > 0 {
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	return text, err
}
