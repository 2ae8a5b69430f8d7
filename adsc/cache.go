package adsc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/disk"
	"tributary/internal/process"
)

// cache keeps on disk what was last received, a file for each type. A file is a list of JSON objects, one a line: a header,
// then resources and removals, of which the last with a name counts. A complete set is written to a new file that takes
// the place of the old one when it has all; changes are appended, and a file of which most is outdated is written anew.
// So a change costs what it is large, but for the first one after a start, which writes the file anew. A file can be read back whatever it
// was interrupted by.
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

// store notes a response. first says that it begins a complete set. If a type cannot be written, that is logged, and its file stays as it
// is: the server brings a client that resumes from it up to date.
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
		if f, err = rewrite(path, r.Delta); err != nil {
			return err
		}
	}
	if f == nil || first {
		if f != nil {
			_ = f.Close() // it is replaced
		}
		if f, err = create(path, &cacheHeader{r.TypeURL, r.Version, r.Delta}); err != nil {
			return err
		}
	}
	c.files[r.TypeURL] = f
	if err := f.append(linesOf(r)); err != nil || r.More {
		return err
	}
	if f.temp {
		if err := f.finish(path); err != nil {
			return err
		}
	}
	if !r.Delta || f.lines <= 2*f.dense+sparse {
		return nil
	}
	fresh, err := rewrite(path, true)
	if fresh != nil {
		_ = f.Close() // it is replaced
		c.files[r.TypeURL] = fresh
	}
	return err
}

// create begins a new file, which finish puts in its place.
func create(path string, header *cacheHeader) (*cacheFile, error) {
	file, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	f := &cacheFile{File: file, temp: true}
	if err := f.append([]any{header}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// finish puts a new file in its place.
func (f *cacheFile) finish(path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	f.temp, f.dense = false, f.lines
	return os.Rename(f.Name(), path)
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

// rewrite writes a file anew with what is in force of it, and returns it for more to be appended; nil if there is none, or one of the
// other variant, from which the client cannot resume. It keeps names in memory, and no resources.
func rewrite(path string, delta bool) (*cacheFile, error) {
	last := make(map[string]int) // the number of the last line with a name
	header, err := scan(path, func(n int, _ []byte, line *cacheLine) error {
		last[line.Name] = n
		return nil
	})
	if err != nil || header == nil || header.Delta != delta {
		return nil, err
	}
	f, err := create(path, header)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	_, err = scan(path, func(n int, text []byte, line *cacheLine) error {
		if line.Removed || last[line.Name] != n {
			return nil
		}
		f.lines++
		_, err := w.Write(text)
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.finish(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// scan returns the header of a file, nil if there is no file, and calls f with each line after it, with its number. It leaves out the
// beginning of a line that something cut short.
func scan(path string, f func(n int, text []byte, line *cacheLine) error) (header *cacheHeader, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, disk.IgnoreMissing(err)
	}
	defer func() { _ = file.Close() }() // it was only read
	r := bufio.NewReaderSize(file, 1<<16)
	for n := 1; ; n++ {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return header, nil
		}
		if err != nil {
			return nil, err
		}
		if header == nil {
			header = &cacheHeader{}
			err = json.Unmarshal(text, header)
		} else {
			var line cacheLine
			if err = json.Unmarshal(text, &line); err == nil {
				err = f(n, text, &line)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
}

// load returns what is known of a type, or nil if there is nothing.
func (c *cache) load(typeURL string) (*Response, error) {
	path, index := c.path(typeURL), make(map[string]int) // by name; in the state of the world resources have none
	r := &Response{TypeURL: typeURL, Complete: true, Cached: true}
	header, err := scan(path, func(_ int, _ []byte, line *cacheLine) error {
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
		case known && line.Name != "":
			r.Resources[i] = res
		default:
			index[line.Name] = len(r.Resources)
			r.Resources = append(r.Resources, res)
		}
		return nil
	})
	switch {
	case err != nil || header == nil:
		return nil, err
	case header.TypeURL != typeURL:
		return nil, fmt.Errorf("%s is of %s", path, header.TypeURL)
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

// restore hands the handlers what the cache has. What cannot be read is logged and comes from the server.
func (c *Client) restore(ctx context.Context) error {
	c.mu.Lock()
	var leading, following []*subscription
	for _, sub := range c.subs {
		if sub.follow { // what it is asked for depends on its parents
			following = append(following, sub)
		} else {
			leading = append(leading, sub)
		}
	}
	c.mu.Unlock()
	for _, sub := range slices.Concat(leading, following) {
		if err := c.restoreType(ctx, sub); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) restoreType(ctx context.Context, sub *subscription) error {
	c.mu.Lock()
	knows, handler, covers := len(sub.versions) > 0, sub.handler, sub.wants.covers()
	sub.handled = sub.wants
	c.mu.Unlock()
	if knows {
		return nil // more than the cache, and maybe newer
	}
	r, err := c.cache.load(sub.typeURL)
	if err != nil {
		c.cfg.Log.Warn("cached responses cannot be read", "type_url", sub.typeURL, "err", err)
		return nil
	}
	if r == nil {
		return nil
	}
	if r.Delta {
		r.Resources = slices.DeleteFunc(r.Resources, func(res Resource) bool { return !covers(res.Name) })
	}
	rejected := handler(ctx, r)
	if ctx.Err() != nil && rejected != nil {
		return ctx.Err()
	}
	c.note(ctx, sub, r, true, rejected)
	c.mu.Lock()
	sub.version = "" // a server that hears the version may answer nothing, and we would never be synced
	c.mu.Unlock()
	return nil
}
