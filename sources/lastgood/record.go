package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"tributary/resource"
)

// A record is an encoded message, in the wire format of protocol buffers, and behind it a checksum over its key and the
// message. Fields that are not known are skipped.

// The fields of a resource.
const (
	fieldSeen       = 1 // nanoseconds since 1970
	fieldLabel      = 2 // a pair, repeated
	fieldAnnotation = 3 // the same
	fieldBody       = 4
	fieldPlace      = 5
	fieldGroup      = 6
	fieldRules      = 7
	fieldCreated    = 8  // seconds since 1970: sources may name any time
	fieldFraction   = 9  // of a second of it, in nanoseconds
	fieldSaid       = 10 // the message of what the source says, if a loss is held; empty if it is that the object is gone
	fieldWas        = 11 // the message of what was before the loss, unless that is served
	fieldOriginal   = 12 // the message of what it was before the transforms of its source, if they made a difference
	fieldNamespace  = 13 // in that: its namespace
)

// The fields of the state of the whole.
const (
	fieldCount  = 1 // of resources
	fieldSum    = 2 // of their checksums, modulo 2⁶⁴, so that the set is known to be whole
	fieldStored = 4 // when this was written, in nanoseconds since 1970
	fieldGuard  = 5 // the state of the deletion guard, which knows its form; 3 was another one
)

// The fields of a pair.
const (
	fieldKey   = 1
	fieldValue = 2
)

var errDamaged = errors.New("damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

const checksumSize = 8

// checksum is 64 bits of SHA-256.
func checksum(key, message []byte) uint64 {
	h := sha256.New()
	h.Write(binary.AppendUvarint(nil, uint64(len(key))))
	h.Write(key)
	h.Write(message)
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// seal appends the checksum to a message.
func seal(key, message []byte) []byte {
	return binary.BigEndian.AppendUint64(message, checksum(key, message))
}

// unseal verifies a record, and returns the message.
func unseal(key, record []byte) ([]byte, error) {
	n := len(record) - checksumSize
	if n < 0 {
		return nil, damaged("the record %q is too short", key)
	}
	if sumOf(record) != checksum(key, record[:n]) {
		return nil, damaged("the record %q does not have its checksum", key)
	}
	return record[:n], nil
}

// sumOf returns the checksum that stands behind a record.
func sumOf(record []byte) uint64 {
	return binary.BigEndian.Uint64(record[len(record)-checksumSize:])
}

// keyOf encodes a key so that the order of the bytes is that of the keys.
func keyOf(k resource.Key) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00%s", k.Kind, k.Namespace, k.Name)
}

func decodeKey(b []byte) (resource.Key, error) {
	parts := bytes.Split(b, []byte{0})
	if len(parts) != 3 {
		return resource.Key{}, damaged("%q is no key", b)
	}
	return resource.Key{Kind: resource.Kind(parts[0]), Namespace: string(parts[1]), Name: string(parts[2])}, nil
}

// encode makes the record of r, which is served, and if a loss of it is held, of what was before it and of what the source says,
// which is nil if it is gone. It is the same for the same resources.
func encode(key []byte, r, was, said *resource.Resource, held bool) []byte {
	b := messageOf(r)
	if held {
		var now []byte
		if said != nil {
			now = messageOf(said)
		}
		served := b
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldSaid, protowire.BytesType), now)
		if before := messageOf(was); !bytes.Equal(before, served) {
			b = protowire.AppendBytes(protowire.AppendTag(b, fieldWas, protowire.BytesType), before)
		}
	}
	return seal(key, b)
}

func messageOf(r *resource.Resource) []byte {
	m := r.Meta()
	b := make([]byte, 0, len(r.Body())+256)
	b = appendTime(b, fieldSeen, m.Seen)
	b = appendPairs(b, fieldLabel, m.Labels)
	b = appendPairs(b, fieldAnnotation, m.Annotations)
	b = protowire.AppendBytes(protowire.AppendTag(b, fieldBody, protowire.BytesType), r.Body())
	b = appendText(b, fieldPlace, m.Origin.Place)
	b = appendText(b, fieldGroup, m.Origin.Group)
	b = appendText(b, fieldRules, m.Origin.Rules)
	if !m.Created.IsZero() {
		b = appendNumber(b, fieldCreated, protowire.EncodeZigZag(m.Created.Unix()))
		b = appendNumber(b, fieldFraction, uint64(m.Created.Nanosecond())) //nolint:gosec // not negative
	}
	if original := r.Original(); original != nil {
		message := appendText(messageOf(original), fieldNamespace, original.Key().Namespace)
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldOriginal, protowire.BytesType), message)
	}
	return b
}

// decode reads the resource of source in a message, and what is held of it, or nil.
func decode(key resource.Key, message []byte, source string) (r *resource.Resource, held *Held, err error) {
	return decodeWithin(key, message, source, 0)
}

// deepest is how deep messages are in others: what a source says of what it holds, and that before its transforms.
const deepest = 2

func decodeWithin(key resource.Key, message []byte, source string, depth int) (r *resource.Resource, held *Held, err error) {
	if depth > deepest {
		return nil, nil, damaged("messages within messages within messages")
	}
	meta := resource.Meta{Key: key, Origin: resource.Origin{Source: source}}
	var body []byte
	var created, fraction int64
	var original *resource.Resource
	err = fields(message, func(field protowire.Number, number uint64, data []byte) error {
		switch field {
		case fieldSeen:
			meta.Seen = timeOf(number)
		case fieldCreated:
			created = protowire.DecodeZigZag(number)
		case fieldFraction:
			fraction = int64(number) //nolint:gosec // below 10⁹
		case fieldLabel:
			return addPair(&meta.Labels, data)
		case fieldAnnotation:
			return addPair(&meta.Annotations, data)
		case fieldBody:
			body = bytes.Clone(data)
		case fieldPlace:
			meta.Origin.Place = string(data)
		case fieldGroup:
			meta.Origin.Group = string(data)
		case fieldRules:
			meta.Origin.Rules = string(data)
		case fieldOriginal:
			original, _, err = decodeWithin(key, data, source, depth+1)
			return err
		case fieldNamespace:
			meta.Key.Namespace = string(data)
		case fieldSaid:
			if held == nil {
				held = new(Held)
			}
			if len(data) > 0 {
				held.Said, _, err = decodeWithin(key, data, source, depth+1)
				return err
			}
		case fieldWas:
			if held == nil {
				held = new(Held)
			}
			held.Was, _, err = decodeWithin(key, data, source, depth+1)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if created != 0 || fraction != 0 {
		meta.Created = time.Unix(created, fraction).UTC()
	}
	r = resource.FromBody(meta, body)
	if original != nil {
		r = r.WithOriginal(original)
	}
	if held != nil && held.Was == nil {
		held.Was = r
	}
	return r, held, nil
}

// Pack encodes r with its key and its source, in one line, for another process to Unpack.
func Pack(r *resource.Resource) string {
	parts := [][]byte{keyOf(r.Key()), []byte(r.Origin().Source), messageOf(r)}
	for i, part := range parts {
		parts[i] = base64.StdEncoding.AppendEncode(nil, part)
	}
	return string(bytes.Join(parts, []byte{' '}))
}

// Unpack returns the resource that Pack encoded.
func Unpack(packed string) (*resource.Resource, error) {
	parts := strings.Split(packed, " ")
	if len(parts) != 3 {
		return nil, damaged("%d parts, and not 3", len(parts))
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.StdEncoding.DecodeString(part); err != nil {
			return nil, err
		}
	}
	key, err := decodeKey(decoded[0])
	if err != nil {
		return nil, err
	}
	r, _, err := decode(key, decoded[2], string(decoded[1]))
	return r, err
}

// state is what is kept of the whole.
type state struct {
	count, sum uint64
	stored     time.Time
	guard      []byte
}

func (s state) encode(key []byte) []byte {
	var b []byte
	b = appendNumber(b, fieldCount, s.count)
	b = appendNumber(b, fieldSum, s.sum)
	b = appendTime(b, fieldStored, s.stored)
	b = appendText(b, fieldGuard, string(s.guard))
	return seal(key, b)
}

func decodeState(message []byte) (s state, err error) {
	err = fields(message, func(field protowire.Number, number uint64, data []byte) error {
		switch field {
		case fieldCount:
			s.count = number
		case fieldSum:
			s.sum = number
		case fieldStored:
			s.stored = timeOf(number)
		case fieldGuard:
			s.guard = bytes.Clone(data)
		}
		return nil
	})
	return s, err
}

// add counts a record in, or with -1 out.
func (s *state) add(record []byte, sign int) {
	s.count += uint64(sign)
	s.sum += uint64(sign) * sumOf(record)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// appendTime appends t unless it is zero.
func appendTime(b []byte, field protowire.Number, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return appendNumber(b, field, protowire.EncodeZigZag(t.UnixNano()))
}

func timeOf(n uint64) time.Time { return time.Unix(0, protowire.DecodeZigZag(n)).UTC() }

// appendText appends s unless it is empty.
func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendPairs(b []byte, field protowire.Number, m map[string]string) []byte {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pair := appendText(appendText(nil, fieldKey, k), fieldValue, m[k])
		b = protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), pair)
	}
	return b
}

func addPair(m *map[string]string, pair []byte) error {
	var key, value string
	err := fields(pair, func(field protowire.Number, _ uint64, data []byte) error {
		switch field {
		case fieldKey:
			key = string(data)
		case fieldValue:
			value = string(data)
		}
		return nil
	})
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[key] = value
	return err
}

// fields calls f for each field of a message: with a number or with data, as its type is.
func fields(message []byte, f func(field protowire.Number, number uint64, data []byte) error) error {
	for b := message; len(b) > 0; {
		field, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return damaged("a record is no message")
		}
		b = b[n:]
		var number uint64
		var data []byte
		switch wire {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, wire, b)
		}
		if n < 0 {
			return damaged("a record is no message")
		}
		if err := f(field, number, data); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
