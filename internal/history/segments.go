package history

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"tributary/internal/disk"
	"tributary/memstore"
)

// segment is a file of records. Only its first size bytes are read.
type segment struct {
	number int
	size   int64
}

const (
	segmentSuffix = ".log"
	baseSuffix    = ".base"
	// segmentShares is the number of full segments in a history. The oldest one makes room for the next.
	segmentShares = 8
)

// directory has the files of a history. One goroutine writes them. Readers get copies of the list of segments.
type directory struct {
	name  string
	limit int64 // in bytes

	segments []segment  // in order
	base     segment    // the newest base, with the number of its segment; size 0 if it is invalid
	current  *disk.File // the last segment; nil or closed until the next write

	oldest atomic.Int64 // the first segment that was not deleted to make room
}

func (d *directory) path(number int, suffix string) string {
	return filepath.Join(d.name, fmt.Sprintf("%010d%s", number, suffix))
}

func (d *directory) last() *segment { return &d.segments[len(d.segments)-1] }

// load lists the files. A missing segment has no size.
func (d *directory) load() error {
	if err := os.MkdirAll(d.name, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.name) // in order of number
	if err != nil {
		return err
	}
	for _, entry := range entries {
		var number int
		var suffix string
		info, err := entry.Info()
		if fields, _ := fmt.Sscanf(entry.Name(), "%d%s", &number, &suffix); fields < 2 || err != nil {
			continue
		}
		switch suffix {
		case segmentSuffix:
			d.expect(number - 1)
			d.segments = append(d.segments, segment{number, info.Size()})
		case baseSuffix:
			d.replaceBase(segment{number, info.Size()})
		case baseSuffix + disk.Unfinished:
			_ = os.Remove(filepath.Join(d.name, entry.Name())) // its writer was killed
		}
	}
	d.expect(d.base.number) // it was older than the base
	return nil
}

// expect lists a segment as missing if it is newer than the last one.
func (d *directory) expect(number int) {
	if d.base.number == number && len(d.segments) == 0 && number > 0 || len(d.segments) > 0 && d.last().number < number {
		d.segments = append(d.segments, segment{number: number})
	}
}

// readFrames yields the frames in the first size bytes of a file, and an error in the place of each damaged part. The
// beginning of a frame at the end is no damage: a killed process leaves it.
func readFrames(path string, size int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close() //nolint:errcheck // it was only read
		for reader := disk.NewReader(file, size); ; {
			payload, err := reader.Next()
			damage, damaged := errors.AsType[*disk.Damage](err)
			switch {
			case damaged && damage.Torn:
				continue
			case errors.Is(err, io.EOF) && reader.At() == size:
				return
			case errors.Is(err, io.EOF):
				err = disk.ErrShort
			}
			if !yield(payload, err) || err != nil && !damaged {
				return
			}
		}
	}
}

// create begins the next segment. It continues the records of the one before it.
func (d *directory) create() error {
	number := 1
	if len(d.segments) > 0 {
		number = d.last().number + 1
	}
	if err := os.MkdirAll(d.name, 0o700); err != nil {
		return err
	}
	file, err := disk.Open(d.path(number, segmentSuffix), 0, false)
	if err == nil {
		_ = d.current.Close() // all records are written
		d.current, d.segments = file, append(d.segments, segment{number: number})
	}
	return err
}

// rotate begins the next segment with a mark and a base of the served objects. A failed attempt leaves no segment.
func (d *directory) rotate(served memstore.Snapshot, mark string, now time.Time) error {
	if err := d.create(); err != nil {
		return err
	}
	err := d.append(&Entry{Time: now}, mark)
	if err == nil {
		err = d.writeBase(d.last().number, served)
	}
	if err != nil {
		err = errors.Join(err, d.current.Close(), os.Remove(d.path(d.last().number, segmentSuffix)))
		d.segments = d.segments[:len(d.segments)-1]
	}
	return err
}

func (d *directory) writeBase(number int, served memstore.Snapshot) error {
	text := []byte("base\n")
	for res := range served.All() {
		key := res.Key()
		text = fmt.Appendf(text, "%s\x00%s\x00%s\x00%s\n", key.Kind, key.Namespace, key.Name, res.Version())
	}
	size, err := disk.Replace(d.path(number, baseSuffix), false, func(out io.Writer) error {
		_, err := out.Write(disk.AppendFrame(nil, text))
		return err
	})
	if err == nil {
		d.replaceBase(segment{number, size})
	}
	return err
}

func (d *directory) replaceBase(base segment) {
	_ = os.Remove(d.path(d.base.number, baseSuffix)) // load ignores it
	d.base = base
}

// invalidateBase empties the base, which needs no space on the disk.
func (d *directory) invalidateBase() {
	_ = os.Truncate(d.path(d.base.number, baseSuffix), 0) // it may be missing
	d.base.size = 0
}

func (d *directory) append(entry *Entry, mark string) error {
	frame, err := newFrame(entry, mark)
	if err == nil {
		err = d.current.Append(frame)
	}
	d.last().size = d.current.Size()
	return err
}

// sizeSince returns the size of the segments from a number.
func (d *directory) sizeSince(number int) (size int64) {
	for _, segment := range d.segments {
		if segment.number >= number {
			size += segment.size
		}
	}
	return size
}

// trim deletes the oldest segments until the others are within the limit, with room for a full last segment.
func (d *directory) trim() (err error) {
	total := d.sizeSince(0) + d.base.size + max(d.limit/segmentShares-d.last().size, 0)
	for ; len(d.segments) > 1 && total > d.limit; d.segments = d.segments[1:] {
		total -= d.segments[0].size
		d.oldest.Store(int64(d.segments[1].number)) // before readers miss the file
		err = errors.Join(err, disk.IgnoreMissing(os.Remove(d.path(d.segments[0].number, segmentSuffix))))
	}
	return err
}
