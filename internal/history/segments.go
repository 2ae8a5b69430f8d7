package history

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tributary/internal/disk"
	"tributary/memstore"
	"tributary/resource"
)

// segment is a file of records. Only its first size bytes are read.
type segment struct {
	number int
	size   int64
}

const (
	segmentSuffix = ".log"
	// completeSuffix names an empty file with the number of the segment with the newest base. It is deleted when
	// changes are lost, which needs no space on the disk.
	completeSuffix = ".complete"
	// segmentShares is the number of full segments in a history. The oldest one makes room for the next.
	segmentShares = 8
)

// directory has the files of a history. One goroutine writes them. Readers get copies of the list of segments.
type directory struct {
	name  string
	limit int64 // in bytes

	segments []segment  // in order
	current  *disk.File // the last segment; nil or closed until the next write
	base     segment    // the segment number and the size of the newest base; zero after lost changes

	oldest atomic.Int64 // the first segment that was not deleted to make room
}

func (d *directory) path(number int, suffix string) string {
	return filepath.Join(d.name, fmt.Sprintf("%010d%s", number, suffix))
}

func (d *directory) last() *segment { return &d.segments[len(d.segments)-1] }

// load lists the files. It gives a missing segment the size 0.
func (d *directory) load() error {
	entries, err := os.ReadDir(d.name) // in order of number
	for _, entry := range entries {
		var number int
		var suffix string
		if fields, _ := fmt.Sscanf(entry.Name(), "%d%s", &number, &suffix); fields < 2 {
			continue
		}
		info, err := entry.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err // a new segment would overwrite the file
		case info.IsDir():
			continue
		}
		switch suffix {
		case segmentSuffix:
			d.expect(number - 1)
			d.segments = append(d.segments, segment{number, info.Size()})
		case completeSuffix:
			d.setBase(segment{number: number})
		}
	}
	d.expect(d.base.number)
	return disk.IgnoreMissing(err)
}

// expect lists a segment as missing if it is newer than the last one.
func (d *directory) expect(number int) {
	if len(d.segments) > 0 && d.last().number < number {
		d.segments = append(d.segments, segment{number: number})
	}
}

// create begins the next segment. It continues the records of the one before it.
func (d *directory) create() error {
	number := 1
	if len(d.segments) > 0 {
		number = d.last().number + 1
	}
	err := os.MkdirAll(d.name, 0o700)
	if err != nil {
		return err
	}
	_ = d.current.Close() // all records are written
	if d.current, err = disk.Open(d.path(number, segmentSuffix), 0, false); err == nil {
		d.segments = append(d.segments, segment{number: number})
	}
	return err
}

// append appends a record: an entry as a line of JSON, and objects as compressed lines of JSON. A reader skips the
// objects that it does not need.
func (d *directory) append(entry Entry, objects iter.Seq[*Object]) (size int64, err error) {
	frame, err := newFrame(entry, objects)
	if err == nil {
		err = d.current.Append(frame)
	}
	d.last().size = d.current.Size()
	return int64(len(frame)), err
}

// compressors are flate writers of a megabyte each.
var compressors = sync.Pool{New: func() any {
	compressor, _ := flate.NewWriter(nil, flate.BestSpeed) // this level is valid
	return compressor
}}

func newFrame(entry Entry, objects iter.Seq[*Object]) ([]byte, error) {
	entry.Old, entry.New = nil, nil
	var payload bytes.Buffer
	err := json.NewEncoder(&payload).Encode(entry)
	compressor := compressors.Get().(*flate.Writer) //nolint:forcetypeassert // see New
	defer compressors.Put(compressor)
	compressor.Reset(&payload)
	encoder := json.NewEncoder(compressor)
	for object := range objects {
		err = errors.Join(err, encoder.Encode(object))
	}
	err = errors.Join(err, compressor.Close())
	return disk.AppendFrame(nil, payload.Bytes()), err
}

// appendBase appends the versions of the served objects.
func (d *directory) appendBase(now time.Time, gap bool, served memstore.Snapshot) error {
	size, err := d.append(Entry{Time: now, Unknown: gap}, func(yield func(*Object) bool) {
		for res := range served.All() {
			if !yield(&Object{Ref: resource.Ref(res.Key()), Version: res.Version()}) {
				return
			}
		}
	})
	number := d.last().number
	if err == nil {
		err = os.WriteFile(d.path(number, completeSuffix), nil, 0o600)
	}
	if err != nil {
		return errors.Join(err, d.current.Close()) // the next attempt is in another file
	}
	d.setBase(segment{number, size})
	return nil
}

// setBase replaces the newest base. The zero segment makes the next start begin after a gap.
func (d *directory) setBase(base segment) {
	if d.base.number != base.number {
		_ = os.Remove(d.path(d.base.number, completeSuffix)) // it may be missing
	}
	d.base = base
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

// trim deletes the oldest segments until the others are within the limit, with room for a full segment.
func (d *directory) trim() (err error) {
	for len(d.segments) > 1 && d.sizeSince(0)+d.limit/segmentShares > d.limit {
		oldest := d.segments[0].number
		d.segments = d.segments[1:]
		d.oldest.Store(int64(d.segments[0].number)) // before readers miss the file
		err = errors.Join(err, disk.IgnoreMissing(os.Remove(d.path(oldest, segmentSuffix))))
	}
	return err
}
