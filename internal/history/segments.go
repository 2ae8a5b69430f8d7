package history

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tributary/internal/disk"
	"tributary/memstore"
	"tributary/resource"
)

// segment is a file of records. Of the last one only the first size bytes are known to be whole.
type segment struct {
	number  int
	size    int64
	damaged bool // there is more behind size, or was, that cannot be read
	events  bool // it has only events, and no base: it was written before all sources were read
}

const (
	segmentSuffix = ".log"
	baseSuffix    = ".base"
	// parts is how many segments share the size of a history: the oldest is dropped to make room for the newest.
	parts = 8
)

// segments are the files of a history. One goroutine uses them; readers are given copies of all.
type segments struct {
	dir   string
	limit int64
	all   []segment  // in order
	base  segment    // that of the last segment
	last  *disk.File // closed, or nil, if there is nothing to append to

	oldest atomic.Int64 // segments below this number are not missed: they were dropped
}

func (s *segments) path(number int, suffix string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%010d%s", number, suffix))
}

// open finds what there is, and how much of it is whole. Lost is told of each file that is gone, or not whole for another reason than that
// a process was killed while it wrote.
func (s *segments) open(lost func(path string, err error)) error {
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
		case suffix == disk.Unfinished:
			_ = os.Remove(filepath.Join(s.dir, name)) // a crash left it; the next one writes over it otherwise
		case err != nil:
		case suffix == segmentSuffix:
			s.all = append(s.all, segment{number: number, size: info.Size()})
		case suffix == baseSuffix && number > s.base.number:
			s.base = segment{number: number, size: info.Size()}
		}
	}
	slices.SortFunc(s.all, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	written := false
	for i := range s.all {
		seg := &s.all[i]
		path := s.path(seg.number, segmentSuffix)
		if err := seg.scan(path, func(err error) { lost(path, err) }); err != nil {
			return err
		}
		if i > 0 {
			for n := s.all[i-1].number + 1; n < seg.number; n++ {
				lost(s.path(n, segmentSuffix), fs.ErrNotExist)
			}
		}
		written = written || seg.size > 0 && !seg.events || seg.damaged
	}
	switch n := len(s.all); {
	case s.base.number == 0 && written:
		lost(s.path(s.all[n-1].number, baseSuffix), fs.ErrNotExist)
	case s.base.number > 0 && (n == 0 || s.all[n-1].number < s.base.number):
		lost(s.path(s.base.number, segmentSuffix), fs.ErrNotExist) // it was there before its base
	}
	return nil
}

// scan finds out how much of a segment is whole, and whether it has only events. Lost is told of what is damaged, which is more than what a
// process that was killed leaves.
func (seg *segment) scan(path string, lost func(error)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	in, err := disk.FileReader(file)
	if err != nil {
		return err
	}
	seg.size = 0
	for {
		payload, err := in.Next()
		damage, damaged := errors.AsType[*disk.Damage](err)
		switch {
		case errors.Is(err, io.EOF) || damaged && damage.Torn:
			return nil
		case damaged:
			lost(damage)
			seg.damaged = true
			continue
		case err != nil:
			return err
		}
		if seg.size == 0 && !seg.damaged {
			first, err := decode(payload)
			seg.events = err == nil && first.Mark != markBegin
		}
		seg.size, seg.damaged = in.At(), false // read finds the damage before it again
	}
}

// check reports whether the files that are written to are where they were. The error names the one that is not.
func (s *segments) check() (path string, err error) {
	if !s.last.IsOpen() {
		return "", nil
	}
	path = s.path(s.all[len(s.all)-1].number, segmentSuffix)
	if err := s.last.Check(); err != nil {
		return path, err
	}
	path = s.path(s.base.number, baseSuffix)
	_, err = os.Stat(path)
	return path, err
}

// closeSegment has nothing more be written to the last segment, and forgets the segments that are gone.
func (s *segments) closeSegment() {
	_ = s.close() // nothing of it is needed any more
	left := make([]segment, 0, len(s.all))
	for _, seg := range s.all {
		if _, err := os.Stat(s.path(seg.number, segmentSuffix)); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, seg)
		}
	}
	s.all = left
}

// create makes the file of the next segment.
func (s *segments) create() (number int, file *disk.File, err error) {
	number = s.base.number + 1
	if n := len(s.all); n > 0 {
		number = max(number, s.all[n-1].number+1)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return 0, nil, err
	}
	file, err = disk.Open(s.path(number, segmentSuffix), 0, false)
	return number, file, err
}

// beginEvents starts a segment for events, which continues the one before it.
func (s *segments) beginEvents() error {
	number, file, err := s.create()
	if err != nil {
		return err
	}
	err = s.close()
	s.last = file
	s.all = append(slices.Clip(s.all), segment{number: number, events: true})
	return errors.Join(err, s.drop(s.limit-s.limit/parts))
}

// begin starts a segment behind the base of what is served now.
func (s *segments) begin(now memstore.Snapshot, at time.Time) error {
	number, file, err := s.create()
	if err != nil {
		return err
	}
	// Until the base is there, the empty segment continues the one before it.
	size, err := s.writeBase(number, now)
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(s.path(number, segmentSuffix)))
	}
	err = s.close()
	s.last, s.base = file, segment{number: number, size: size}
	s.all = append(slices.Clip(s.all), segment{number: number})
	records := new(encoder)
	if markErr := records.add(head{Entry{At: at}, mark{markBegin}}); markErr != nil {
		return errors.Join(err, markErr)
	}
	return errors.Join(err, s.append(records.out), s.drop(s.limit-s.limit/parts)) // the newest is to have room
}

// writeBase writes the versions of what is served, in one record.
func (s *segments) writeBase(number int, now memstore.Snapshot) (int64, error) {
	var text bytes.Buffer
	text.WriteString("base\n")
	for r := range now.All() {
		key := r.Key()
		fmt.Fprintf(&text, "%s\x00%s\x00%s\x00%s\n", key.Kind, key.Namespace, key.Name, r.Version())
	}
	return disk.Replace(s.path(number, baseSuffix), false, func(out io.Writer) error {
		_, err := out.Write(disk.AppendFrame(nil, text.Bytes()))
		return err
	})
}

// append writes records behind the last one, all of them or none.
func (s *segments) append(records []byte) error {
	if err := s.last.Append(records); err != nil {
		return err
	}
	s.all[len(s.all)-1].size = s.last.Size()
	return nil
}

// full says that it is time for another segment.
func (s *segments) full() bool { return s.all[len(s.all)-1].size >= s.limit/parts }

// trim keeps the history within its size behind a round that was larger than the room for it.
func (s *segments) trim() error {
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
		s.oldest.Store(int64(s.all[1].number)) // before it is gone, so that nobody misses it
		errs = append(errs, disk.IgnoreMissing(os.Remove(s.path(s.all[0].number, segmentSuffix))))
		s.all = slices.Clone(s.all[1:]) // readers have the slice that was
	}
	bases, err := filepath.Glob(filepath.Join(s.dir, "*"+baseSuffix))
	errs = append(errs, err)
	for _, path := range bases {
		if path != s.path(s.base.number, baseSuffix) {
			errs = append(errs, disk.IgnoreMissing(os.Remove(path)))
		}
	}
	return errors.Join(errs...)
}

func (s *segments) close() error { return s.last.Close() }

// known is what the history knows of an object that was served last: its version, and all of it if there is a record.
type known struct {
	version string
	object  *Object
}

// served returns what was served last, from the base and what of. It is nil if there is no base or nothing behind it, and the error
// is that of damage if that is not whole.
func (s *segments) served(of func([]segment) iter.Seq2[*record, error]) (map[resource.Key]known, error) {
	if s.base.size == 0 || !slices.ContainsFunc(s.all, func(seg segment) bool { return seg.number == s.base.number }) {
		return nil, nil // there is no base, what changed since was lost, or it was dropped to make room for events
	}
	file, err := os.Open(s.path(s.base.number, baseSuffix))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	in, err := disk.FileReader(file)
	if err != nil {
		return nil, err
	}
	text, err := in.Next()
	if errors.Is(err, io.EOF) {
		err = disk.ErrShort
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
	for r, err := range of(since) {
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
