package adsc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/process"
)

// cache keeps on disk what was last received, a file for each type. A file is a list of JSON objects, one a line: a header,
// then resources and removals, of which the last with a name counts. A complete set is written to a new file that takes
// the place of the old one when it has all; changes are appended, and a file of which most is outdated is written anew.
// So a change costs what it is large, and a file can be read back whatever it was interrupted by.
type cache struct {
	dir   string
	log   *slog.Logger
	lock  *os.File
	files map[string]*cacheFile // by type; nil for those that failed
}

type cacheFile struct {
	*os.File
	lines int
	dense int  // how many there were when each was in force
	temp  bool // not yet in place
}

// The lines of a file.
type (
	cacheHeader struct {
		TypeURL string `json:"type_url"`
		Version string `json:"version,omitempty"`
		Delta   bool   `json:"delta"`
	}
	cacheLine struct {
		Name    string          `json:"name,omitempty"`
		Version string          `json:"version,omitempty"`
		Removed bool            `json:"removed,omitempty"`
		Object  json.RawMessage `json:"object,omitempty"` // for people, where the type is known
		Type    string          `json:"type,omitempty"`   // of Value
		Value   []byte          `json:"value,omitempty"`  // exactly as it was received
	}
)

// sparse is how many outdated lines a file may have beyond as many as are in force.
const sparse = 1000

// errShared says that another client has the cache directory: of two that write the same files neither could resume.
var errShared = errors.New("it is in use by another client; give each one of its own")

// openCache makes a directory if need be, and takes it for this client alone.
func openCache(dir string, log *slog.Logger) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := process.Lock(lock); err != nil {
		_ = lock.Close() // nothing was written to it
		if errors.Is(err, process.ErrLocked) {
			err = errShared
		}
		return nil, err
	}
	return &cache{dir: dir, log: log, lock: lock, files: make(map[string]*cacheFile)}, nil
}

func (c *cache) path(typeURL string) string {
	return filepath.Join(c.dir, strings.NewReplacer("/", "_", "\\", "_", ":", "_").Replace(typeURL)+".jsonl")
}

// store notes a response. first says that it begins a complete set. A type that cannot be written is logged and left alone:
// what its file says was once true, and is brought up to date by the server.
func (c *cache) store(r *Response, first bool) {
	f, known := c.files[r.TypeURL]
	if known && f == nil && !first {
		return
	}
	if !r.Delta && !r.Complete {
		return // a part without names; what it replaces is not known
	}
	if err := c.write(f, r, first); err != nil {
		c.log.Warn("responses are not cached", "type_url", r.TypeURL, "err", err)
		if f := c.files[r.TypeURL]; f != nil {
			_ = f.Close() // the error is known already
		}
		c.files[r.TypeURL] = nil
	}
}

func (c *cache) write(f *cacheFile, r *Response, first bool) (err error) {
	path := c.path(r.TypeURL)
	if f == nil && !first {
		if f, err = reopen(path, r.Delta); err != nil {
			return err
		}
		c.files[r.TypeURL] = f
	}
	if f == nil || first {
		if f != nil {
			_ = f.Close() // it is replaced
		}
		file, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		f = &cacheFile{File: file, temp: true}
		c.files[r.TypeURL] = f
		if err := f.append([]any{cacheHeader{r.TypeURL, r.Version, r.Delta}}); err != nil {
			return err
		}
	}
	if err := f.append(linesOf(r)); err != nil {
		return err
	}
	if r.More {
		return nil
	}
	if f.temp {
		if err := f.Sync(); err != nil {
			return err
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			return err
		}
		f.temp, f.dense = false, f.lines
	}
	if r.Delta && f.lines > 2*f.dense+sparse {
		return c.compact(r.TypeURL, f, path)
	}
	return nil
}

func linesOf(r *Response) []any {
	lines := make([]any, 0, len(r.Resources)+len(r.Removed))
	for _, res := range r.Resources {
		line := cacheLine{Name: res.Name, Version: res.Version, Type: res.Body.GetTypeUrl(), Value: res.Body.GetValue()}
		if object, err := protojson.Marshal(res.Body); err == nil && json.Valid(object) {
			line.Object = object
		}
		lines = append(lines, line)
	}
	for _, name := range r.Removed {
		lines = append(lines, cacheLine{Name: name, Removed: true})
	}
	return lines
}

// append adds lines, and leaves nothing of them in memory.
func (f *cacheFile) append(lines []any) error {
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	f.lines += len(lines)
	return w.Flush()
}

// reopen opens a file to append to, without the beginning of a line that something cut short. It returns nil if there is none,
// or one of the other variant, which has nothing that could be gone on with.
func reopen(path string, delta bool) (*cacheFile, error) {
	var header *cacheHeader
	live := make(map[string]bool)
	lines, end, err := scan(path, func(text []byte) error {
		if header == nil {
			header = &cacheHeader{}
			return json.Unmarshal(text, header)
		}
		var line struct {
			Name    string `json:"name"`
			Removed bool   `json:"removed"`
		}
		err := json.Unmarshal(text, &line)
		if live[line.Name] = true; line.Removed {
			delete(live, line.Name)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if header == nil || header.Delta != delta {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(end); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &cacheFile{File: file, lines: lines, dense: 1 + len(live)}, nil
}

// compact writes a file anew with what is in force of it. It keeps names in memory, and no resources.
func (c *cache) compact(typeURL string, f *cacheFile, path string) error {
	if err := f.Close(); err != nil {
		return err
	}
	last := map[string]int{}
	n := 0
	if _, _, err := scan(path, func(text []byte) error {
		var line struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		last[line.Name] = n
		n++
		return nil
	}); err != nil {
		return err
	}
	file, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fresh := &cacheFile{File: file}
	c.files[typeURL] = fresh
	w := bufio.NewWriter(fresh)
	n = 0
	if _, _, err := scan(path, func(text []byte) error {
		var line struct {
			Name    string `json:"name"`
			Removed bool   `json:"removed"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		keep := n == 0 || last[line.Name] == n && !line.Removed
		n++
		if !keep {
			return nil
		}
		fresh.lines++
		_, err := w.Write(append(text, '\n'))
		return err
	}); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fresh.dense = fresh.lines
	if err := fresh.Sync(); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// scan calls f with each line of a file that has an end, and returns how many there are and where the last one ends.
func scan(path string, f func(line []byte) error) (lines int, end int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	r := bufio.NewReaderSize(file, 1<<16)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, end, nil
		}
		if err != nil {
			return lines, end, err
		}
		if err := f(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return lines, end, fmt.Errorf("%s:%d: %w", path, lines+1, err)
		}
		lines++
		end += int64(len(line))
	}
}

// load returns what is known of a type, or nil if there is nothing.
func (c *cache) load(typeURL string) (*Response, error) {
	var header *cacheHeader
	index := map[string]int{}
	r := &Response{TypeURL: typeURL, Complete: true, Cached: true}
	_, _, err := scan(c.path(typeURL), func(text []byte) error {
		if header == nil {
			header = &cacheHeader{}
			return json.Unmarshal(text, header)
		}
		var line cacheLine
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		res := Resource{Name: line.Name, Version: line.Version}
		if line.Type != "" {
			res.Body = &anypb.Any{TypeUrl: line.Type, Value: line.Value}
		}
		i, known := index[line.Name]
		switch {
		case line.Removed && known:
			r.Resources[i] = Resource{}
			delete(index, line.Name)
		case line.Removed:
		case known && header.Delta:
			r.Resources[i] = res
		default:
			index[line.Name] = len(r.Resources)
			r.Resources = append(r.Resources, res)
		}
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && header == nil:
		return nil, nil
	case err != nil:
		return nil, err
	case header.TypeURL != typeURL:
		return nil, fmt.Errorf("%s is of %s", c.path(typeURL), header.TypeURL)
	}
	r.Resources = slices.DeleteFunc(r.Resources, func(r Resource) bool { return r.Name == "" && r.Body == nil })
	r.Version, r.Delta = header.Version, header.Delta
	return r, nil
}

func (c *cache) close() {
	for _, f := range c.files {
		if f != nil {
			_ = f.Close() // each write was flushed and checked
		}
	}
	_ = c.lock.Close() // nothing was written to it
}
