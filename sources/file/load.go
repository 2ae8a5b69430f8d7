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
	shown   string // the root, as in the configuration
	decode  resource.Options
	parse   parser
	maxSize int64 // bytes
	// followLinks follows links that lead out of the root.
	followLinks bool
	// deriving says that objects of other APIs are converted, so that the sink does not know all objects of a file.
	deriving bool
	// confirm reports whether a group has the content of the input with that mark.
	confirm func(group, mark string) bool
}

// parser decodes the text of a file at place as the content of a group. If earlier is not nil, it is the decoded last
// text, and the parser returns the decoded new one.
type parser func(
	group, place string, text []byte, o resource.Options, earlier *resource.DecodeCache,
) (sources.Content, *resource.DecodeCache)

// digest identifies the content of a file; the zero value is that of no file.
type digest [16]byte

// loaded is the result of reading one file.
type loaded struct {
	path    string
	state   fileState
	decoded *resource.DecodeCache // of the last text, then of this one; nil if unknown
	content *sources.Content      // nil if it is unchanged or unreadable
	changed bool                  // while it was being read
	err     error                 // of reading; fs.ErrNotExist: it was deleted
	late    bool                  // it is still being read; the other fields are unknown
}

// timeResolution is the coarsest resolution of modification times, of FAT: a file may change twice within it and have
// one time.
const timeResolution = 2 * time.Second

var (
	errTooLarge   = errors.New("file too large")
	errNotRegular = errors.New("not a regular file")
	errEmptied    = errors.New("emptied since the look")
	errBlank      = errors.New("nothing is in it, not even an object of another API")
)

// loadOne reads one file into buf, and returns buf for the next one.
func (l *loader) loadOne(file *loaded, buf []byte) []byte {
	before := file.state
	file.state = fileState{doubtful: true}
	modified := time.Now()
	data, info, changed, err := l.read(file.path, buf)
	if info != nil {
		file.state.stamp = stampOf(info)
	}
	switch {
	case errors.Is(err, errTooLarge):
		file.state.doubtful = false
		c := l.rejected(file.path,
			fmt.Errorf("%w: it has %d bytes, and maxFileBytes is %d", errTooLarge, info.Size(), l.maxSize))
		file.content = &c
		return buf
	case err != nil:
		file.err = err
		return buf
	case len(data) == 0: // another program begins to write the file
		file.err = errEmptied
		return buf
	}
	file.changed = changed
	file.state.doubtful = changed || info.ModTime().After(modified.Add(-timeResolution))
	if resource.Blank(file.path, data) { // another program has begun to write it
		file.err = errBlank
		return data[:0]
	}
	sum := sha256.Sum256(data)
	file.state.sum = digest(sum[:16])
	if file.state.sum == before.sum {
		return data[:0]
	}
	mark := l.mark(file.path, file.state.sum)
	if before.sum == (digest{}) && !l.deriving && l.confirm(file.path, mark) {
		return data[:0]
	}
	if file.decoded == nil && before.sum != (digest{}) { // its first change
		file.decoded = new(resource.DecodeCache)
	}
	var content sources.Content
	content, file.decoded = l.parse(file.path, l.displayName(l.shown, file.path), data, l.decode, file.decoded)
	content.Fingerprint, content.Text = mark, hex.EncodeToString(file.state.sum[:])
	file.content = &content
	return data[:0]
}

// mark identifies the inputs of a content: text, file and options.
func (l *loader) mark(path string, sum digest) string {
	return fmt.Sprintf("%s %+v %s", sum[:], l.decode, l.displayName(l.shown, path))
}

// rejected returns the content of a file that could not be read. It may be another file under a new name.
func (l *loader) rejected(path string, err error) sources.Content {
	place := l.displayName(l.shown, path)
	return sources.Content{Group: path, Renamable: true, Rejects: []sources.Reject{{
		Unread: true, Origin: resource.Origin{Place: place}, Err: fmt.Errorf("%s: %w", place, err),
	}}}
}

// read reads a file of at most maxSize bytes. changed says that it was written to meanwhile.
func (l *loader) read(path string, buf []byte) (data []byte, info fs.FileInfo, changed bool, err error) {
	file, err := l.open(path)
	if err != nil {
		return nil, nil, false, err
	}
	defer file.Close() //nolint:errcheck // only read
	if info, err = file.Stat(); err != nil {
		return nil, nil, false, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, false, &fs.PathError{Op: "read", Path: l.displayName(l.root, path), Err: errNotRegular}
	}
	if info.Size() > l.maxSize {
		return nil, info, false, errTooLarge
	}
	data = slices.Grow(buf[:0], int(info.Size()))
	for int64(len(data)) < info.Size() {
		n, err := file.Read(data[len(data):info.Size()])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			break // it was truncated
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
	if int64(len(data)) == info.Size() {
		if now, err := file.Stat(); err == nil && stampOf(now) == stampOf(info) {
			return data, info, false, nil
		}
	}
	return data, info, true, nil
}

func (l *loader) open(path string) (fs.File, error) {
	root := l.root
	if l.single || l.followLinks {
		root = ""
	}
	return l.disk.Open(root, l.displayName(l.root, path))
}

// displayName returns the name of the file at path below a root. Origins and messages have a path that people can open.
func (l *loader) displayName(root, path string) string {
	if l.single {
		return root
	}
	return underDir(root, filepath.FromSlash(path))
}

// maxRemembered is the limit of decoded documents that are kept: 300 bytes each.
const maxRemembered = 50_000

// memory has the decoded files that have changed since they were first read, so that the cost of their next change is
// that of the changed documents. The loop owns it.
type memory struct {
	files map[string]*resource.DecodeCache
	order []string // by time of the last change
	size  int      // documents
}

func newMemory() *memory { return &memory{files: make(map[string]*resource.DecodeCache)} }

// set keeps a decoded file, or forgets it for nil. Beyond the limit, it forgets the files that did not change for the
// longest time.
func (m *memory) set(path string, decoded *resource.DecodeCache) {
	if old := m.files[path]; old != nil {
		m.size -= old.Size()
		delete(m.files, path)
		m.order = slices.DeleteFunc(m.order, func(p string) bool { return p == path })
	}
	if decoded == nil || decoded.Size() > maxRemembered {
		return
	}
	m.files[path], m.order, m.size = decoded, append(m.order, path), m.size+decoded.Size()
	for m.size > maxRemembered {
		m.set(m.order[0], nil)
	}
}
