package history

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// segment is a file of records. Of the last one only the first size bytes are known to be whole.
type segment struct {
	number int
	size   int64
}

const (
	segmentSuffix = ".log"
	baseSuffix    = ".base"
	unfinished    = ".new"
	// parts is how many segments share the size of a history: the oldest is dropped to make room for the newest.
	parts = 8
)

// segments are the files of a history. One goroutine uses them; readers are given copies of all.
type segments struct {
	dir   string
	limit int64
	all   []segment // in order
	base  segment   // that of the last segment
	last  *os.File  // open for appending
	torn  []string  // what was found that is not whole
}

func (s *segments) path(number int, suffix string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%010d%s", number, suffix))
}

// open finds what there is, and how much of it is whole.
func (s *segments) open() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		name, suffix := e.Name(), filepath.Ext(e.Name())
		number, err := strconv.Atoi(strings.TrimSuffix(name, suffix))
		switch {
		case suffix == unfinished:
			_ = os.Remove(filepath.Join(s.dir, name)) // a crash left it; the next one writes over it otherwise
		case err != nil:
		case suffix == segmentSuffix:
			s.all = append(s.all, segment{number, info.Size()})
		case suffix == baseSuffix && number > s.base.number:
			s.base = segment{number, info.Size()}
		}
	}
	slices.SortFunc(s.all, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	for i := range s.all {
		seg := &s.all[i]
		size := seg.size
		if seg.size, err = s.whole(seg.number); err != nil {
			return err
		}
		if lost := size - seg.size; lost > 0 {
			s.torn = append(s.torn, fmt.Sprintf("%s: what is behind byte %d is no whole record: %d bytes are lost", s.path(seg.number, segmentSuffix), seg.size, lost))
		}
	}
	return nil
}

// there returns an error if somebody has taken the file away that is written to, or put another one in its place: what is written would be read by nobody.
func (s *segments) there() error {
	if s.last == nil || len(s.all) == 0 {
		return nil
	}
	path := s.path(s.all[len(s.all)-1].number, segmentSuffix)
	opened, err := s.last.Stat()
	if err != nil {
		return nil //nolint:nilerr // the next write says so
	}
	found, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !os.SameFile(opened, found) || found.Size() < s.all[len(s.all)-1].size:
		return fmt.Errorf("%s is another file, or was cut, since it was opened", path)
	}
	return nil
}

// anew leaves out what is gone, so that another segment can be begun.
func (s *segments) anew() error {
	s.all = slices.DeleteFunc(slices.Clone(s.all), func(seg segment) bool {
		info, err := os.Stat(s.path(seg.number, segmentSuffix))
		return err != nil || info.Size() < seg.size
	})
	_ = s.close() // it is gone
	s.last = nil
	return os.MkdirAll(s.dir, 0o700)
}

// whole returns how much of a segment is whole.
func (s *segments) whole(number int) (size int64, err error) {
	file, err := os.Open(s.path(number, segmentSuffix))
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	in := bufio.NewReader(file)
	for {
		payload, err := readFrame(in, maxRecord)
		if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
			return size, nil
		}
		if err != nil {
			return 0, err
		}
		size += int64(len(payload)) + frameHead
	}
}

// begin starts a segment behind the base of what is served now.
func (s *segments) begin(now memstore.Snapshot, at time.Time) error {
	number := s.base.number + 1
	if n := len(s.all); n > 0 {
		number = max(number, s.all[n-1].number+1)
	}
	path := s.path(number, segmentSuffix)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// Until the base is there, the empty segment continues the one before it.
	size, err := s.writeBase(number, now)
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(path))
	}
	err = s.close()
	s.last, s.base = file, segment{number, size}
	s.all = append(slices.Clip(s.all), segment{number: number})
	records := newEncoder()
	if markErr := records.add(head{Entry{At: at}, mark{markBegin}}); markErr != nil {
		return errors.Join(err, markErr)
	}
	return errors.Join(err, s.append(records.out.Bytes()), s.drop(s.limit-s.limit/parts)) // the newest is to have room
}

// writeBase writes the versions of what is served, in one record.
func (s *segments) writeBase(number int, now memstore.Snapshot) (int64, error) {
	var text, frame bytes.Buffer
	text.WriteString("base\n")
	for r := range now.All() {
		key := r.Key()
		fmt.Fprintf(&text, "%s\x00%s\x00%s\x00%s\n", key.Kind, key.Namespace, key.Name, r.Version())
	}
	appendFrame(&frame, text.Bytes())
	path := s.path(number, baseSuffix)
	if err := os.WriteFile(path+unfinished, frame.Bytes(), 0o600); err != nil {
		return 0, err
	}
	return int64(frame.Len()), os.Rename(path+unfinished, path)
}

// append writes records behind the last one. What could be written of them only in part is taken back.
func (s *segments) append(records []byte) error {
	last := &s.all[len(s.all)-1]
	if _, err := s.last.Write(records); err != nil {
		if cutErr := s.last.Truncate(last.size); cutErr != nil { // nothing can be read behind it
			err = errors.Join(err, cutErr, s.close())
			s.last = nil
		}
		return err
	}
	last.size += int64(len(records))
	return nil
}

// full says that it is time for another segment.
func (s *segments) full() bool { return s.all[len(s.all)-1].size >= s.limit/parts }

// within keeps the history within its size behind a round that was larger than the room for it.
func (s *segments) within() error {
	if s.total() <= s.limit {
		return nil
	}
	return s.drop(s.limit)
}

func (s *segments) total() int64 {
	total := s.base.size
	for _, seg := range s.all {
		total += seg.size
	}
	return total
}

// drop removes the oldest segments until the rest is within room, which the newest and the base may not be, and what nobody needs any more.
func (s *segments) drop(room int64) error {
	var errs []error
	for total := s.total(); len(s.all) > 1 && total > room; {
		total -= s.all[0].size
		errs = append(errs, ignoreMissing(os.Remove(s.path(s.all[0].number, segmentSuffix))))
		s.all = slices.Clone(s.all[1:]) // readers have the slice that was
	}
	bases, err := filepath.Glob(filepath.Join(s.dir, "*"+baseSuffix))
	errs = append(errs, err)
	for _, path := range bases {
		if path != s.path(s.base.number, baseSuffix) {
			errs = append(errs, ignoreMissing(os.Remove(path)))
		}
	}
	return errors.Join(errs...)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *segments) close() error {
	if s.last == nil {
		return nil
	}
	return s.last.Close()
}

// known is what the history knows of an object that was served last: its version, and all of it if there is a record.
type known struct {
	version string
	object  *Object
}

// served returns what was served last. It is nil if there is no base that is whole.
func (s *segments) served() (map[resource.Key]known, error) {
	if s.base.number == 0 {
		return nil, nil
	}
	file, err := os.Open(s.path(s.base.number, baseSuffix))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := readFrame(bufio.NewReader(file), 1<<32-1)
	if errors.Is(err, errTorn) || errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := make(map[resource.Key]known)
	for line := range bytes.Lines(text) {
		words := strings.Split(strings.TrimSuffix(string(line), "\n"), "\x00")
		if len(words) == 4 {
			all[resource.Key{Kind: resource.Kind(words[0]), Namespace: words[1], Name: words[2]}] = known{version: words[3]}
		}
	}
	since := slices.DeleteFunc(slices.Clone(s.all), func(seg segment) bool { return seg.number < s.base.number })
	for r, err := range read(s.dir, since) {
		if err != nil {
			return nil, err
		}
		if r.Mark != "" {
			continue
		}
		e, err := r.entry()
		if err != nil {
			return nil, err
		}
		if e.New == nil {
			delete(all, e.Key())
		} else {
			all[e.Key()] = known{e.New.Version, e.New}
		}
	}
	return all, nil
}
