package lastgood

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/internal/disk"
	"tributary/resource"
)

// record is a key and a value, in a frame; no value means that the key is deleted. The first byte of the key is one of these. A commit ends
// the records that were written together; its value is the time.
type record struct {
	key   string
	value []byte
}

const (
	keyObject = "o" // and the key of the object
	keyPrint  = "p" // and the name of the group
	keyGuard  = "g"
	keyNote   = "n"
	keyCommit = "c"
)

// appendTo appends the frame of r.
func (r record) appendTo(b []byte) []byte {
	payload := make([]byte, 0, binary.MaxVarintLen64+len(r.key)+len(r.value))
	payload = binary.AppendUvarint(payload, uint64(len(r.key)))
	return disk.AppendFrame(b, append(append(payload, r.key...), r.value...))
}

// size is about that of the frame.
func (r record) size() int64 { return int64(disk.HeaderSize + 1 + len(r.key) + len(r.value)) }

func decodeRecord(payload []byte) (r record, err error) {
	n, k := binary.Uvarint(payload)
	if k <= 0 || n == 0 || n > uint64(len(payload)-k) {
		return r, fmt.Errorf("%w: a record has no key", errDamaged)
	}
	end := k + int(n) //nolint:gosec // at most the length
	return record{string(payload[k:end]), payload[end:]}, nil
}

func commit(at time.Time) record {
	return record{keyCommit, []byte(at.UTC().Format(time.RFC3339Nano))}
}

// recordKey is the key of the record of an object. The order of the bytes is that of the keys.
func recordKey(k resource.Key) string {
	return keyObject + string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name
}

func decodeKey(key string) (resource.Key, error) {
	parts := strings.Split(key[len(keyObject):], "\x00")
	if len(parts) != 3 {
		return resource.Key{}, fmt.Errorf("%w: %q is no key", errDamaged, key)
	}
	return resource.Key{Kind: resource.Kind(parts[0]), Namespace: parts[1], Name: parts[2]}, nil
}

// Print identifies what a group of a source held and what made it so. The zero Print is none.
type Print struct {
	Sum   [16]byte
	Notes string // what else is known of the group; only the source of the print reads it
}

func (p Print) encode() []byte {
	if p == (Print{}) {
		return nil
	}
	return append(slices.Clone(p.Sum[:]), p.Notes...)
}

func decodePrint(value []byte) (p Print) {
	p.Notes = string(value[copy(p.Sum[:], value):])
	return p
}

// The value of an object is a list of numbers and texts: of the resource that is served, whether a loss of it is held, and then what was
// before the loss, unless that is served, and what the source says, unless the object is gone. What a later version may append is skipped.

func appendNumber(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendPairs(b []byte, m map[string]string) []byte {
	b = appendNumber(b, int64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendText(appendText(b, k), m[k])
	}
	return b
}

// appendTime appends seconds, as sources may name any time, and nanoseconds since 1970.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	return appendNumber(appendNumber(b, t.Unix()), int64(t.Nanosecond()))
}

// appendResource appends r, which may be nil, and what it was before the transforms of its source, if they made a difference.
func appendResource(b []byte, r *resource.Resource) []byte {
	if r == nil {
		return appendNumber(b, 0)
	}
	m := r.Meta()
	b = appendTime(appendTime(appendNumber(b, 1), m.Seen), m.Created)
	b = appendPairs(appendPairs(b, m.Labels), m.Annotations)
	for _, s := range []string{string(r.Body()), m.Origin.Place, m.Origin.Group, m.Origin.Rules, m.Key.Namespace} {
		b = appendText(b, s)
	}
	return appendResource(b, r.Original())
}

// list is what is left of a list that is read. Bad says that it was not whole.
type list struct {
	b   []byte
	bad bool
}

func (l *list) number() int64 {
	n, k := binary.Varint(l.b)
	l.skip(k)
	return n
}

func (l *list) text() []byte {
	n, k := binary.Uvarint(l.b)
	if l.skip(k); n > uint64(len(l.b)) {
		l.skip(-1)
		return nil
	}
	text := l.b[:n]
	l.b = l.b[n:]
	return text
}

func (l *list) skip(n int) {
	if n <= 0 {
		l.b, l.bad = nil, true
		return
	}
	l.b = l.b[n:]
}

func (l *list) pairs() (m map[string]string) {
	for n := l.number(); n > 0 && !l.bad; n-- {
		if m == nil {
			m = make(map[string]string)
		}
		key := string(l.text())
		m[key] = string(l.text())
	}
	return m
}

func (l *list) time() time.Time {
	s, ns := l.number(), l.number()
	if s == 0 && ns == 0 {
		return time.Time{}
	}
	return time.Unix(s, ns).UTC()
}

// deepest is how many resources are in others: an original has none.
const deepest = 1

func (l *list) resource(key resource.Key, source string, depth int) *resource.Resource {
	if l.number() == 0 {
		return nil
	}
	if depth > deepest {
		l.skip(0)
		return nil
	}
	m := resource.Meta{Key: key, Seen: l.time(), Created: l.time(), Labels: l.pairs(), Annotations: l.pairs()}
	body := bytes.Clone(l.text())
	m.Origin = resource.Origin{Source: source, Place: string(l.text()), Group: string(l.text()), Rules: string(l.text())}
	m.Key.Namespace = string(l.text())
	r := resource.FromBody(m, body)
	if original := l.resource(key, source, depth+1); original != nil {
		r = r.WithOriginal(original)
	}
	return r
}

// encode encodes r, which is served, and, if a loss of it is held, the object before it and as the source wants it.
func encode(r, was, desired *resource.Resource, held bool) []byte {
	b := appendResource(make([]byte, 0, len(r.Body())+256), r)
	if !held {
		return appendNumber(b, 0)
	}
	if was == r {
		was = nil
	}
	return appendResource(appendResource(appendNumber(b, 1), was), desired)
}

// decode reads the object of source, and the loss of it that is held, or nil.
func decode(key resource.Key, value []byte, source string) (r *resource.Resource, held *Held, err error) {
	l := &list{b: value}
	r = l.resource(key, source, 0)
	if l.number() != 0 {
		held = &Held{Was: l.resource(key, source, 0), Desired: l.resource(key, source, 0)}
		if held.Was == nil {
			held.Was = r
		}
	}
	if l.bad || r == nil {
		return nil, nil, fmt.Errorf("%w: the record of %s", errDamaged, key)
	}
	return r, held, nil
}

// Pack encodes r with its key and its source, in one line, for another process to Unpack.
func Pack(r *resource.Resource) string {
	b := appendText(appendText(appendText(nil, string(r.Key().Kind)), r.Key().Name), r.Origin().Source)
	return base64.StdEncoding.EncodeToString(appendResource(b, r))
}

// Unpack returns the resource that Pack encoded.
func Unpack(packed string) (*resource.Resource, error) {
	b, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil, err
	}
	l := &list{b: b}
	key := resource.Key{Kind: resource.Kind(l.text()), Name: string(l.text())}
	r := l.resource(key, string(l.text()), 0)
	if l.bad || r == nil {
		return nil, fmt.Errorf("%w: an object", errDamaged)
	}
	return r, nil
}
