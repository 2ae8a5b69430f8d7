// Package disk keeps records in files. A record is a frame with checksums (AppendFrame, Reader): a damaged frame loses only itself, and a
// process that is killed leaves at most the beginning of one at the end. A File is appended to, Replace exchanges a file as a whole, and
// Lock keeps other processes out of a directory.
package disk

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// A frame is a header and a payload. The header has the length of the payload, its checksum, and a checksum of these two, four bytes each.
// So a reader finds the next frame behind a damaged one.

// HeaderSize is how many bytes of a frame stand before its payload.
const HeaderSize = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendFrame appends the frame of a payload, which is shorter than 4 GiB.
func AppendFrame(b, payload []byte) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload))) //nolint:gosec // see above
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	return append(b, payload...)
}

// Damage is a part of a file that is no whole frame: the bytes from From to before To.
type Damage struct {
	From, To int64
	// Torn says that it is at the end of the file, and what a process leaves that is killed while it appends, or a machine that stops: the
	// beginning of a frame, or zeros.
	Torn bool
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%d bytes from byte %d on are damaged", d.To-d.From, d.From)
}

// Reader reads the frames of a file.
type Reader struct {
	in       *bufio.Reader
	at, size int64
}

// NewReader reads the first size bytes of in.
func NewReader(in io.Reader, size int64) *Reader {
	return &Reader{in: bufio.NewReaderSize(io.LimitReader(in, size), 1<<16), size: size}
}

// FileReader reads a file, of which it takes the present size.
func FileReader(f *os.File) (*Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return NewReader(f, info.Size()), nil
}

// At is where the next frame begins.
func (r *Reader) At() int64 { return r.at }

// Next returns the payload of the next frame. The error is a *Damage if there is something else, behind which the next call goes on, and
// io.EOF at the end.
func (r *Reader) Next() ([]byte, error) {
	from, used := r.at, r.at // zeros follow on used
	for {
		head, err := r.in.Peek(HeaderSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(head) < HeaderSize {
			if rest := len(bytes.TrimRight(head, "\x00")); rest > 0 {
				used = r.at + int64(rest)
			}
			if r.skip(len(head)); r.at == from {
				return nil, io.EOF
			}
			return nil, &Damage{from, r.at, used-from < HeaderSize}
		}
		size, sum := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		switch {
		case crc32.Checksum(head[:8], castagnoli) != binary.BigEndian.Uint32(head[8:]):
			if head[0] != 0 {
				used = r.at + 1
			}
			r.skip(1)
		case r.at > from:
			return nil, &Damage{From: from, To: r.at}
		case int64(size) > r.size-r.at-HeaderSize:
			if _, err := io.Copy(io.Discard, r.in); err != nil {
				return nil, err
			}
			r.at = r.size
			return nil, &Damage{from, r.size, true}
		default:
			r.skip(HeaderSize)
			payload := make([]byte, size)
			n, err := io.ReadFull(r.in, payload)
			r.at += int64(n)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the file became shorter
				return nil, &Damage{from, r.at, true}
			}
			if err != nil {
				return nil, err
			}
			if crc32.Checksum(payload, castagnoli) != sum {
				return nil, &Damage{from, r.at, r.at == r.size && bytes.HasSuffix(payload, []byte{0})}
			}
			return payload, nil
		}
	}
}

// skip goes over n bytes that were seen.
func (r *Reader) skip(n int) {
	n, _ = r.in.Discard(n)
	r.at += int64(n)
}
