package file

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"tributary/resource"
	"tributary/sources"
)

// loader reads and decodes files.
type loader struct {
	disk    disk
	root    string // absolute
	single  bool   // the root is a file, and the only one
	shown   string // the root, as people call it
	decode  resource.Options
	parse   parser
	maxSize int64 // bytes
	// followLinks follows links that lead out of the root.
	followLinks bool
	// deriving says that something is made of objects of other APIs, so that the sink alone does not know what is in a file.
	deriving bool
	// confirm reports whether a group holds what was made of the input of that mark.
	confirm func(group, mark string) bool
}

// parser makes the text of a file, which people call place, the content of a group. If earlier is not nil, what is known of the last
// text goes in, and what will be known of this one comes out.
type parser func(group, place string, text []byte, o resource.Options, earlier *resource.Decoded) (sources.Content, *resource.Decoded)

// digest identifies the content of a file; the zero value is that of none.
type digest [16]byte

func digestOf(data []byte) (d digest) {
	sum := sha256.Sum256(data)
	copy(d[:], sum[:])
	return d
}

// loaded is what became of one file.
type loaded struct {
	path    string
	known   known
	decoded *resource.Decoded // of what it had last, and then of what it has; nil if that is not known
	content *sources.Content  // nil if it is the same as before, or could not be read
	changed bool              // while it was being read
	err     error             // it could not be read; fs.ErrNotExist: it has gone
	late    bool              // it is still being read; all else is unknown
}

// doubt is how long after its modification a file may be modified again without its time showing it: file systems keep
// time as coarsely as 2 s (FAT).
const doubt = 2 * time.Second

var (
	errTooLarge   = errors.New("file too large")
	errNotRegular = errors.New("not a regular file")
	errEmptied    = errors.New("emptied since the look")
	errBlank      = errors.New("nothing is in it, not even an object of another API")
)

// loadOne reads one file into buf, which it returns to be used again.
func (l *loader) loadOne(f *loaded, buf []byte) []byte {
	before := f.known
	f.known = known{doubtful: true}
	at := time.Now()
	data, fi, changed, err := l.read(f.path, buf)
	if fi != nil {
		f.known.stamp = stampOf(fi)
	}
	switch {
	case errors.Is(err, errTooLarge):
		f.known.doubtful = false
		c := l.rejected(f.path, fmt.Errorf("%w: it has %d bytes, and maxFileBytes is %d", errTooLarge, fi.Size(), l.maxSize))
		f.content = &c
		return buf
	case err != nil:
		f.err = err
		return buf
	case len(data) == 0: // empty files are not read: somebody begins to write it
		f.err = errEmptied
		return buf
	}
	f.changed = changed
	f.known.doubtful = changed || fi.ModTime().After(at.Add(-doubt))
	if resource.Blank(f.path, data) { // somebody has begun to write it
		f.err = errBlank
		return data[:0]
	}
	f.known.sum = digestOf(data)
	if f.known.sum == before.sum {
		return data[:0]
	}
	mark := l.mark(f.path, f.known.sum)
	if before.sum == (digest{}) && !l.deriving && l.confirm(f.path, mark) {
		return data[:0]
	}
	if f.decoded == nil && before.sum != (digest{}) { // it is one that changes
		f.decoded = new(resource.Decoded)
	}
	var content sources.Content
	content, f.decoded = l.parse(f.path, l.in(l.shown, f.path), data, l.decode, f.decoded)
	content.Mark, content.Text = mark, hex.EncodeToString(f.known.sum[:])
	f.content = &content
	return data[:0]
}

// mark identifies all that a content is made of: of which text, of which file, and how that is read.
func (l *loader) mark(path string, sum digest) string {
	return fmt.Sprintf("%s %+v %s", sum[:], l.decode, l.in(l.shown, path))
}

// rejected is the content of a file that could not be read. It may have what another one had: it may be that, renamed.
func (l *loader) rejected(path string, err error) sources.Content {
	place := l.in(l.shown, path)
	return sources.Content{Group: path, Renamable: true, Rejects: []sources.Reject{{
		Unread: true, Origin: resource.Origin{Place: place}, Err: fmt.Errorf("%s: %w", place, err),
	}}}
}

// read reads a file of at most maxSize bytes. changed says that somebody wrote to it meanwhile.
func (l *loader) read(path string, buf []byte) (data []byte, fi fs.FileInfo, changed bool, err error) {
	f, err := l.open(path)
	if err != nil {
		return nil, nil, false, err
	}
	defer f.Close() //nolint:errcheck // only read
	if fi, err = f.Stat(); err != nil {
		return nil, nil, false, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, false, &fs.PathError{Op: "read", Path: l.in(l.root, path), Err: errNotRegular}
	}
	if fi.Size() > l.maxSize {
		return nil, fi, false, errTooLarge
	}
	data = slices.Grow(buf[:0], int(fi.Size()))
	for int64(len(data)) < fi.Size() {
		n, err := f.Read(data[len(data):fi.Size()])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			break // somebody made it shorter
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
	if int64(len(data)) == fi.Size() {
		if now, err := f.Stat(); err == nil && stampOf(now) == stampOf(fi) {
			return data, fi, false, nil
		}
	}
	return data, fi, true, nil
}

func (l *loader) open(path string) (fs.File, error) {
	root := l.root
	if l.single || l.followLinks {
		root = ""
	}
	return l.disk.Open(root, l.in(l.root, path))
}

// in returns what the file at path is called, given what the root is called. In origins and messages that is a path which
// people can open.
func (l *loader) in(root, path string) string {
	if l.single {
		return root
	}
	return under(root, filepath.FromSlash(path))
}

// maxRemembered is of how many documents it is known what became of them. It bounds memory: 300 bytes each.
const maxRemembered = 50_000

// memory is what is known of files that have changed since they were first read, so that their next change costs no more than what
// changes. The others cost nothing. It is owned by the loop.
type memory struct {
	files map[string]*resource.Decoded
	order []string // the one that changed last is the last
	size  int      // documents
}

func newMemory() *memory { return &memory{files: make(map[string]*resource.Decoded)} }

// set takes note of what became of a file, and forgets those that have not changed for the longest time if there are too many; nil forgets
// it.
func (m *memory) set(path string, d *resource.Decoded) {
	if old := m.files[path]; old != nil {
		m.size -= old.Size()
		delete(m.files, path)
		m.order = slices.DeleteFunc(m.order, func(p string) bool { return p == path })
	}
	if d == nil || d.Size() > maxRemembered {
		return
	}
	m.files[path], m.order, m.size = d, append(m.order, path), m.size+d.Size()
	for m.size > maxRemembered {
		m.set(m.order[0], nil)
	}
}
