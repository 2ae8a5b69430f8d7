package history

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"tributary/internal/disk"
)

// A record is the payload of a frame. It begins with the length of its head, as a varint: the head is an entry without objects, or a mark,
// as JSON. The objects of the entry follow as compressed JSON, which a reader that looks for others need not read.

// maxRecord is how many bytes a record may have.
const maxRecord = 64 << 20

var errRecord = errors.New("a record is not one of this version")

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
	out    []byte
	packed bytes.Buffer
}

// packers are writers of a megabyte each.
var packers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level exists
	return w
}}

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
		pack := packers.Get().(*flate.Writer) //nolint:forcetypeassert // of New
		defer packers.Put(pack)
		pack.Reset(&e.packed)
		if err := errors.Join(json.NewEncoder(pack).Encode(content), pack.Close()); err != nil {
			return err
		}
	}
	payload := binary.AppendUvarint(nil, uint64(len(text)))
	payload = append(append(payload, text...), e.packed.Bytes()...)
	if len(payload) > maxRecord {
		return fmt.Errorf("a record of %d bytes is too long", len(payload))
	}
	e.out = disk.AppendFrame(e.out, payload)
	return nil
}

// record is a payload of which the head was read.
type record struct {
	head
	packed []byte
}

func decode(payload []byte) (r record, err error) {
	n, k := binary.Uvarint(payload)
	if k <= 0 || n > uint64(len(payload)-k) {
		return r, errRecord
	}
	rest := payload[k:]
	if err := json.Unmarshal(rest[:n], &r.head); err != nil {
		return r, fmt.Errorf("%w: %w", errRecord, err)
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
