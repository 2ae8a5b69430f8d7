package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
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
	last  *os.File  // open for appending; nil if there is nothing to append to

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
		case suffix == unfinished:
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
		if seg.size, seg.events, err = whole(path); errors.Is(err, errTorn) {
			seg.damaged = true
			lost(path, err)
		} else if err != nil {
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

// whole returns how much of a segment is whole, and whether it has only events. The error is errTorn if the rest is more than what a
// process that was killed leaves, which is the beginning of a record.
func whole(path string) (size int64, events bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	in := bufio.NewReader(file)
	for {
		payload, err := readFrame(in, maxRecord)
		switch {
		case errors.Is(err, io.EOF):
			return size, events, nil
		case errors.Is(err, errTorn):
			rest, err := io.ReadAll(io.NewSectionReader(file, size, 1<<62))
			if err == nil && !torn(rest) {
				err = errTorn
			}
			return size, events, err
		case err != nil:
			return 0, false, err
		}
		if size == 0 {
			first, err := decode(payload)
			events = err == nil && first.Mark != markBegin
		}
		size += int64(len(payload)) + frameHead
	}
}

// torn reports whether rest, which does not begin with a whole record, may be the beginning of one, or zeros, as a crash of the machine
// leaves them.
func torn(rest []byte) bool {
	if len(bytes.Trim(rest, "\x00")) == 0 {
		return true
	}
	if len(rest) <= frameHead {
		return true
	}
	_, k := binary.Uvarint(rest[frameHead:])
	if k <= 0 || int64(len(rest)) >= frameHead+int64(binary.BigEndian.Uint32(rest)) { // it is all there, and not what was written
		return k == 0
	}
	text := rest[frameHead+k:]
	start := min(len(text), len(headStart))
	// else there is another record behind it
	return string(text[:start]) == headStart[:start] && !bytes.Contains(text[start:], []byte(headStart))
}

// look reports whether the files that are written to are where they were. The error names the one that is not.
func (s *segments) look() (path string, err error) {
	if s.last == nil {
		return "", nil
	}
	seg := s.all[len(s.all)-1]
	path = s.path(seg.number, segmentSuffix)
	there, err := os.Stat(path)
	if err != nil {
		return path, err
	}
	open, err := s.last.Stat()
	switch {
	case err != nil:
		return "", nil //nolint:nilerr // who writes will say so
	case !os.SameFile(there, open):
		return path, errReplaced
	case there.Size() < seg.size:
		return path, errShort
	}
	path = s.path(s.base.number, baseSuffix)
	_, err = os.Stat(path)
	return path, err
}

// What may have become of a file that is there.
var (
	errReplaced = errors.New("it is another file than was written")
	errShort    = errors.New("the end of it is gone")
)

// leave has nothing more be written to the last segment, and forgets the segments that are gone.
func (s *segments) leave() {
	_ = s.close() // nothing of it is needed any more
	s.last = nil
	left := make([]segment, 0, len(s.all))
	for _, seg := range s.all {
		if _, err := os.Stat(s.path(seg.number, segmentSuffix)); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, seg)
		}
	}
	s.all = left
}

// create makes the file of the next segment.
func (s *segments) create() (number int, file *os.File, err error) {
	number = s.base.number + 1
	if n := len(s.all); n > 0 {
		number = max(number, s.all[n-1].number+1)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return 0, nil, err
	}
	file, err = os.OpenFile(s.path(number, segmentSuffix), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
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
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	err = s.close()
	s.last, s.base = file, segment{number: number, size: size}
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
	if s.last == nil {
		return errors.New("there is no file to write to")
	}
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
		s.oldest.Store(int64(s.all[1].number)) // before it is gone, so that nobody misses it
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

// served returns what was served last, from the base and what of. It is nil if there is no base or nothing behind it, and the error errTorn
// if that is not whole.
func (s *segments) served(of func([]segment) iter.Seq2[*record, error]) (map[resource.Key]known, error) {
	if !slices.ContainsFunc(s.all, func(seg segment) bool { return seg.number == s.base.number }) {
		return nil, nil // there is no base, or what changed since was dropped to make room for events
	}
	file, err := os.Open(s.path(s.base.number, baseSuffix))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := readFrame(bufio.NewReader(file), 1<<32-1)
	if errors.Is(err, io.EOF) {
		err = errTorn
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
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
