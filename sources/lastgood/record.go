package lastgood

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/internal/disk"
	"tributary/resource"
	"tributary/sources/guard"
)

// record is a key with a value, or without one for a deletion. A constant below is the first byte of the key. A commit
// record ends the records of one write; its value is the time.
type record struct {
	key   string
	value []byte
}

const (
	keyObject  = "o" // and the key of the object
	keyPrint   = "p" // and the name of the group
	keyGuard   = "g"
	keyNote    = "n"
	keyReading = "r"
	keyCommit  = "c"
)

// appendTo appends the frame of the record.
func (r record) appendTo(buffer []byte) []byte {
	payload := make([]byte, 0, binary.MaxVarintLen64+len(r.key)+len(r.value))
	payload = binary.AppendUvarint(payload, uint64(len(r.key)))
	return disk.AppendFrame(buffer, append(append(payload, r.key...), r.value...))
}

// size returns the approximate size of the frame.
func (r record) size() int64 { return int64(disk.HeaderSize + 1 + len(r.key) + len(r.value)) }

func decodeRecord(payload []byte) (decoded record, err error) {
	keySize, prefixSize := binary.Uvarint(payload)
	if prefixSize <= 0 || keySize == 0 || keySize > uint64(len(payload)-prefixSize) {
		return decoded, fmt.Errorf("%w: a record has no key", errDamaged)
	}
	end := prefixSize + int(keySize) //nolint:gosec // at most the length
	return record{string(payload[prefixSize:end]), payload[end:]}, nil
}

func commitRecord(moment time.Time) record {
	return record{keyCommit, []byte(moment.UTC().Format(time.RFC3339Nano))}
}

// recordKey returns the record's key for an object. Record keys sort like object keys.
func recordKey(key resource.Key) string {
	return keyObject + string(key.Kind) + "\x00" + key.Namespace + "\x00" + key.Name
}

func decodeKey(key string) (resource.Key, error) {
	parts := strings.Split(key[len(keyObject):], "\x00")
	if len(parts) != 3 {
		return resource.Key{}, fmt.Errorf("%w: %q is no key", errDamaged, key)
	}
	return resource.Key{Kind: resource.Kind(parts[0]), Namespace: parts[1], Name: parts[2]}, nil
}

// Print is a fingerprint of a source's group and of the settings that shaped it. Groups without one have the zero
// Print.
type Print struct {
	Sum   [16]byte
	Notes string // private to the source
}

func (p Print) encode() []byte {
	if p == (Print{}) {
		return nil
	}
	return append(slices.Clone(p.Sum[:]), p.Notes...)
}

func decodePrint(value []byte) (groupPrint Print) {
	groupPrint.Notes = string(value[copy(groupPrint.Sum[:], value):])
	return groupPrint
}

// The value of an object is a list of numbers and texts. It has the served resource, a flag for a held loss, and with
// it the previous resource, unless that is served, and the desired one, unless the source deleted it. decodeObject
// skips fields that later versions append.

func appendNumber(buffer []byte, number int64) []byte { return binary.AppendVarint(buffer, number) }

func appendText(buffer []byte, text string) []byte {
	return append(binary.AppendUvarint(buffer, uint64(len(text))), text...)
}

func appendPairs(buffer []byte, pairs map[string]string) []byte {
	buffer = appendNumber(buffer, int64(len(pairs)))
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		buffer = appendText(appendText(buffer, name), pairs[name])
	}
	return buffer
}

// appendTime appends seconds since 1970 and nanoseconds. An int64 of nanoseconds could not hold each time of a source.
func appendTime(buffer []byte, instant time.Time) []byte {
	if instant.IsZero() {
		instant = time.Unix(0, 0)
	}
	return appendNumber(appendNumber(buffer, instant.Unix()), int64(instant.Nanosecond()))
}

// appendResource appends an object, which may be nil, and its original if transforms changed it.
func appendResource(buffer []byte, object *resource.Resource) []byte {
	if object == nil {
		return appendNumber(buffer, 0)
	}
	meta := object.Meta()
	buffer = appendTime(appendTime(appendNumber(buffer, 1), meta.Seen), meta.Created)
	buffer = appendPairs(appendPairs(buffer, meta.Labels), meta.Annotations)
	for _, text := range []string{
		string(object.Body()), meta.Origin.Place, meta.Origin.Group, meta.Origin.Rules,
		meta.Key.Namespace,
	} {
		buffer = appendText(buffer, text)
	}
	return appendResource(buffer, object.Original())
}

// decoder reads a list of numbers and texts. After damage, it returns zero values.
type decoder struct {
	rest    []byte
	damaged bool
}

func (d *decoder) number() int64 {
	number, size := binary.Varint(d.rest)
	d.skip(size)
	return number
}

func (d *decoder) text() []byte {
	length, k := binary.Uvarint(d.rest)
	if d.skip(k); length > uint64(len(d.rest)) {
		d.skip(-1)
		return nil
	}
	text := d.rest[:length]
	d.rest = d.rest[length:]
	return text
}

func (d *decoder) skip(count int) {
	if count <= 0 {
		d.rest, d.damaged = nil, true
		return
	}
	d.rest = d.rest[count:]
}

func (d *decoder) pairs() (pairs map[string]string) {
	for remaining := d.number(); remaining > 0 && !d.damaged; remaining-- {
		if pairs == nil {
			pairs = make(map[string]string)
		}
		key := string(d.text())
		pairs[key] = string(d.text())
	}
	return pairs
}

func (d *decoder) time() time.Time {
	seconds, nanoseconds := d.number(), d.number()
	if seconds == 0 && nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, nanoseconds).UTC()
}

// maxDepth limits the nesting of resources: an original has none.
const maxDepth = 1

func (d *decoder) resource(key resource.Key, source string, depth int) *resource.Resource {
	if d.number() == 0 {
		return nil
	}
	if depth > maxDepth {
		d.skip(0)
		return nil
	}
	meta := resource.Meta{Key: key, Seen: d.time(), Created: d.time(), Labels: d.pairs(), Annotations: d.pairs()}
	body := bytes.Clone(d.text())
	meta.Origin = resource.Origin{
		Source: source, Place: string(d.text()), Group: string(d.text()),
		Rules: string(d.text()),
	}
	meta.Key.Namespace = string(d.text())
	object := resource.FromBody(meta, body)
	if original := d.resource(key, source, depth+1); original != nil {
		object = object.WithOriginal(original)
	}
	return object
}

// encodeObject encodes the served object, and with a held loss the previous and the desired one.
func encodeObject(served, previous, desired *resource.Resource, held bool) []byte {
	buffer := appendResource(make([]byte, 0, len(served.Body())+256), served)
	if !held {
		return appendNumber(buffer, 0)
	}
	if previous == served {
		previous = nil
	}
	return appendResource(appendResource(appendNumber(buffer, 1), previous), desired)
}

// decodeObject decodes an object of a source and its held loss, which may be nil.
func decodeObject(
	key resource.Key, value []byte, source string,
) (served *resource.Resource, held *guard.Loss, err error) {
	decoding := &decoder{rest: value}
	served = decoding.resource(key, source, 0)
	if decoding.number() != 0 {
		held = &guard.Loss{Previous: decoding.resource(key, source, 0), Desired: decoding.resource(key, source, 0)}
		if held.Previous == nil {
			held.Previous = served
		}
	}
	if decoding.damaged || served == nil {
		return nil, nil, fmt.Errorf("%w: the record of %s", errDamaged, key)
	}
	return served, held, nil
}
