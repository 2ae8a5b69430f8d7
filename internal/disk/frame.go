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

// A frame is a header and a payload. The header has the length of the payload, its checksum, and a checksum of these
// two, four bytes each. So a reader finds the next frame after a damaged one.

// HeaderSize is the number of bytes before the payload of a frame.
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
	// Torn says that it is an incomplete frame or zeros at the end of the file, as a killed process or a stopped machine
	// leaves them.
	Torn bool
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%d bytes from byte %d on are damaged", d.To-d.From, d.From)
}

// Reader reads the frames of a file.
type Reader struct {
	input        *bufio.Reader
	offset, size int64
}

// NewReader reads the first size bytes of input.
func NewReader(input io.Reader, size int64) *Reader {
	return &Reader{input: bufio.NewReaderSize(io.LimitReader(input, size), 1<<16), size: size}
}

// FileReader reads a file up to its present size.
func FileReader(file *os.File) (*Reader, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return NewReader(file, info.Size()), nil
}

// At returns the offset of the next frame.
func (r *Reader) At() int64 { return r.offset }

// Next returns the payload of the next frame. The error is a *Damage for other bytes, which the next call skips, and
// io.EOF at the end.
func (r *Reader) Next() ([]byte, error) {
	from, used := r.offset, r.offset // zeros follow on used
	for {
		head, err := r.input.Peek(HeaderSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(head) < HeaderSize {
			if rest := len(bytes.TrimRight(head, "\x00")); rest > 0 {
				used = r.offset + int64(rest)
			}
			if r.skip(len(head)); r.offset == from {
				return nil, io.EOF
			}
			return nil, &Damage{from, r.offset, used-from < HeaderSize}
		}
		size, sum := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		switch {
		case crc32.Checksum(head[:8], castagnoli) != binary.BigEndian.Uint32(head[8:]):
			if head[0] != 0 {
				used = r.offset + 1
			}
			r.skip(1)
		case r.offset > from:
			return nil, &Damage{From: from, To: r.offset}
		case int64(size) > r.size-r.offset-HeaderSize:
			if _, err := io.Copy(io.Discard, r.input); err != nil {
				return nil, err
			}
			r.offset = r.size
			return nil, &Damage{from, r.size, true}
		default:
			r.skip(HeaderSize)
			payload := make([]byte, size)
			n, err := io.ReadFull(r.input, payload)
			r.offset += int64(n)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the file became shorter
				return nil, &Damage{from, r.offset, true}
			}
			if err != nil {
				return nil, err
			}
			if crc32.Checksum(payload, castagnoli) != sum {
				return nil, &Damage{from, r.offset, r.offset == r.size && bytes.HasSuffix(payload, []byte{0})}
			}
			return payload, nil
		}
	}
}

// skip skips n bytes of the buffer.
func (r *Reader) skip(n int) {
	n, _ = r.input.Discard(n)
	r.offset += int64(n)
}
