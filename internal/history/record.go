package history

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A record is a frame: the length of its payload and a checksum over it, four bytes each, and the payload. That begins with
// the length of its head, as a varint: the head is an entry without objects, or a mark, as JSON. Behind it stand the objects of
// the entry, as compressed JSON, which who looks for others need not read.

const (
	frameHead = 8
	maxRecord = 64 << 20 // of a payload, in bytes: what claims to be longer is damaged
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// headStart is how the head of each record starts.
const headStart = `{"at":"`

// errTorn says that what follows is no whole record.
var errTorn = errors.New("a record is not whole")

// mark is a head that is no entry.
type mark struct {
	Mark string `json:"mark"` // begin, gap or event
}

// The marks.
const (
	markBegin = "begin" // of a segment
	markGap   = "gap"   // entries are missing before it, since they could not be written
	markEvent = "event" // it is an event
)

// head is what stands first in a record.
type head struct {
	Entry
	mark
}

// objects are what stands behind it.
type objects struct {
	Old *Object `json:"old,omitempty"`
	New *Object `json:"new,omitempty"`
}

// encoder appends records to a buffer.
type encoder struct {
	out    bytes.Buffer
	packed bytes.Buffer
	pack   *flate.Writer
}

func newEncoder() *encoder {
	e := &encoder{}
	e.pack, _ = flate.NewWriter(&e.packed, flate.BestSpeed) // the level exists
	return e
}

// add appends the record of h.
func (e *encoder) add(h head) error {
	content := objects{h.Old, h.New}
	h.Old, h.New = nil, nil
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	e.packed.Reset()
	if content != (objects{}) {
		e.pack.Reset(&e.packed)
		if err := errors.Join(json.NewEncoder(e.pack).Encode(content), e.pack.Close()); err != nil {
			return err
		}
	}
	payload := binary.AppendUvarint(nil, uint64(len(text)))
	payload = append(append(payload, text...), e.packed.Bytes()...)
	if len(payload) > maxRecord {
		return fmt.Errorf("a record of %d bytes is too long", len(payload))
	}
	appendFrame(&e.out, payload)
	return nil
}

func appendFrame(out *bytes.Buffer, payload []byte) {
	var size [frameHead]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(payload))) //nolint:gosec // at most maxRecord, and a base is shorter than 4 GiB
	binary.BigEndian.PutUint32(size[4:], crc32.Checksum(payload, castagnoli))
	out.Write(size[:])
	out.Write(payload)
}

// readFrame reads the payload of the next frame. The error is io.EOF behind the last one, and errTorn if what there is is not whole.
func readFrame(in io.Reader, limit uint32) ([]byte, error) {
	var size [frameHead]byte
	switch _, err := io.ReadFull(in, size[:]); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errTorn
	case err != nil:
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || n > limit { // none is empty: zeros at the end of a file are no records
		return nil, errTorn
	}
	// What is there is read before the length is believed.
	payload, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err != nil {
		return nil, err
	}
	if uint32(len(payload)) != n || crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(size[4:]) { //nolint:gosec // at most n
		return nil, errTorn
	}
	return payload, nil
}

// record is a payload of which the head was read.
type record struct {
	head
	packed []byte
}

func decode(payload []byte) (r record, err error) {
	n, k := binary.Uvarint(payload)
	if k <= 0 || n > uint64(len(payload)-k) {
		return r, errTorn
	}
	rest := payload[k:]
	if err := json.Unmarshal(rest[:n], &r.head); err != nil {
		return r, fmt.Errorf("%w: %w", errTorn, err)
	}
	r.packed = rest[n:]
	return r, nil
}

// entry is the record's, with its objects.
func (r *record) entry() (*Entry, error) {
	e := r.Entry
	if len(r.packed) == 0 {
		return &e, nil
	}
	var content objects
	unpack := flate.NewReader(bytes.NewReader(r.packed))
	if err := json.NewDecoder(unpack).Decode(&content); err != nil {
		return nil, fmt.Errorf("history of %s: %w", e.Key(), err)
	}
	e.Old, e.New = content.Old, content.New
	return &e, nil
}
