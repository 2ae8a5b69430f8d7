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

// A record is the payload of a frame: the length of its header as a varint, the header as JSON, and the objects of its
// entry as compressed JSON. A reader skips the objects that it does not need.

// maxRecord limits the bytes of a record.
const maxRecord = 64 << 20

var errRecord = errors.New("not a record of this version")

// Marks of records without an entry.
const (
	markBegin = "begin" // of a segment with a base
	markGap   = "gap"   // the same, and changes before it are missing
)

// header is the entry of a record without objects.
type header struct {
	Entry

	Mark string `json:"mark,omitempty"`
}

// record is a record with a decoded header.
type record struct {
	header
	packed  []byte // the compressed pair of objects
	segment int
	damaged bool // records before it are damaged or missing
}

// pair are the objects of an entry.
type pair struct {
	Old *Object `json:"old,omitempty"`
	New *Object `json:"new,omitempty"`
}

// compressors are flate writers of a megabyte each.
var compressors = sync.Pool{New: func() any {
	compressor, _ := flate.NewWriter(nil, flate.BestSpeed) // this level is valid
	return compressor
}}

// newFrame returns the frame of a record.
func newFrame(entry *Entry, mark string) ([]byte, error) {
	objects, plain := pair{entry.Old, entry.New}, *entry
	plain.Old, plain.New = nil, nil
	text, err := json.Marshal(header{plain, mark})
	if err != nil {
		return nil, err
	}
	payload := bytes.NewBuffer(append(binary.AppendUvarint(nil, uint64(len(text))), text...))
	if objects != (pair{}) {
		compressor := compressors.Get().(*flate.Writer) //nolint:forcetypeassert // see New
		defer compressors.Put(compressor)
		compressor.Reset(payload)
		if err := errors.Join(json.NewEncoder(compressor).Encode(objects), compressor.Close()); err != nil {
			return nil, err
		}
	}
	if payload.Len() > maxRecord {
		return nil, fmt.Errorf("a record of %d bytes is too long", payload.Len())
	}
	return disk.AppendFrame(nil, payload.Bytes()), nil
}

func (r *record) decode(payload []byte) error {
	length, width := binary.Uvarint(payload)
	if width <= 0 || length > uint64(len(payload)-width) {
		return errRecord
	}
	text, packed := payload[width:][:length], payload[width:][length:]
	if err := json.Unmarshal(text, &r.header); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	if r.packed = packed; r.Mark == "event" { // of earlier versions
		r.Mark = ""
	}
	return nil
}

// entry returns the entry of a record with its objects.
func (r *record) entry() (*Entry, error) {
	entry := r.Entry
	if len(r.packed) > 0 {
		var objects pair
		if err := json.NewDecoder(flate.NewReader(bytes.NewReader(r.packed))).Decode(&objects); err != nil {
			return nil, fmt.Errorf("history of %s: %w", entry.Key(), err)
		}
		entry.Old, entry.New = objects.Old, objects.New
	}
	return &entry, nil
}
