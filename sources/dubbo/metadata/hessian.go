package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
)

// A part of hessian2 (http://hessian.caucho.com/doc/hessian-serialization.html): writes strings and a map of strings, reads the values of
// metadata.

// appendString writes a string. Its length is counted in UTF-16 units.
func appendString(b []byte, s string) []byte {
	units := len(utf16.Encode([]rune(s)))
	switch {
	case units < 32:
		b = append(b, byte(units))
	case units < 1024:
		b = append(b, 0x30+byte(units>>8), byte(units))
	default:
		b = append(b, 'S', byte(units>>8), byte(units))
	}
	return append(b, s...)
}

// appendMap writes a map of strings.
func appendMap(b []byte, pairs ...[2]string) []byte {
	b = append(b, 'H')
	for _, p := range pairs {
		b = appendString(appendString(b, p[0]), p[1])
	}
	return append(b, 'Z')
}

// reader reads hessian2: null, booleans, numbers, strings, lists, maps, objects (as maps of their fields), and references.
type reader struct {
	rest    []byte
	classes [][]string // the fields of each
	seen    []any      // the targets of references: lists, maps and objects, in the order in which they begin
	values  int        // read so far
}

const (
	maxValues = 200_000
	maxDepth  = 16
)

var errShort = errors.New("hessian2: it ends early")

func (r *reader) byte() (byte, error) {
	if len(r.rest) == 0 {
		return 0, errShort
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b, nil
}

// value reads a value: nil, bool, int, string, []any or map[string]any.
func (r *reader) value(depth int) (any, error) {
	if r.values++; r.values > maxValues || depth > maxDepth {
		return nil, fmt.Errorf("hessian2: more than %d values, or deeper than %d", maxValues, maxDepth)
	}
	if len(r.rest) == 0 {
		return nil, errShort
	}
	switch tag := r.rest[0]; {
	case tag == 'N' || tag == 'T' || tag == 'F':
		r.rest = r.rest[1:]
		return map[byte]any{'T': true, 'F': false}[tag], nil
	case isInt(tag):
		return r.int()
	case isLong(tag):
		return r.long()
	case tag < 0x20 || tag >= 0x30 && tag <= 0x33 || tag == 'S' || tag == 'R':
		return r.string()
	case tag >= 'U' && tag <= 'X' || tag >= 0x70 && tag <= 0x7f:
		return r.list(depth)
	case tag == 'M' || tag == 'H':
		return r.dictionary(depth)
	case tag == 'C':
		if err := r.class(); err != nil {
			return nil, err
		}
		return r.value(depth + 1)
	case tag == 'O' || tag >= 0x60 && tag <= 0x6f:
		return r.object(depth)
	case tag == 'Q':
		r.rest = r.rest[1:]
		n, err := r.int()
		if err != nil || n < 0 || n >= len(r.seen) {
			return nil, fmt.Errorf("hessian2: a reference to nothing")
		}
		return r.seen[n], nil
	default:
		return nil, fmt.Errorf("hessian2: %#x is not read", tag)
	}
}

// begin adds a target of references. The caller passes its value to the returned function.
func (r *reader) begin() (known func(any)) {
	at := len(r.seen)
	r.seen = append(r.seen, nil)
	return func(v any) { r.seen[at] = v }
}

func (r *reader) list(depth int) (any, error) {
	known := r.begin()
	tag, err := r.byte()
	if err != nil {
		return nil, err
	}
	length := -1
	if tag == 'U' || tag == 'V' || tag >= 0x70 && tag <= 0x77 {
		if err := r.typeName(); err != nil {
			return nil, err
		}
	}
	switch {
	case tag == 'V' || tag == 'X':
		if length, err = r.int(); err != nil {
			return nil, err
		}
	case tag >= 0x70:
		length = int(tag & 7)
	}
	all := []any{}
	for length < 0 || len(all) < length {
		if length < 0 && r.end() {
			break
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	known(all)
	return all, nil
}

// end reads the end marker of a value without a length, and reports whether it was there.
func (r *reader) end() bool {
	if len(r.rest) > 0 && r.rest[0] == 'Z' {
		r.rest = r.rest[1:]
		return true
	}
	return false
}

func (r *reader) dictionary(depth int) (any, error) {
	tag, err := r.byte()
	if err != nil {
		return nil, err
	}
	if tag == 'M' {
		if err := r.typeName(); err != nil {
			return nil, err
		}
	}
	all := map[string]any{}
	r.begin()(all)
	for !r.end() {
		key, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok {
			all[name] = value
		}
	}
	return all, nil
}

// class reads the definition of a class: its name and its fields.
func (r *reader) class() error {
	r.rest = r.rest[1:]
	if _, err := r.string(); err != nil {
		return err
	}
	n, err := r.int()
	if err != nil || n < 0 || n > maxValues {
		return fmt.Errorf("hessian2: a class of %d fields", n)
	}
	var names []string
	for range n {
		name, err := r.string()
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	r.classes = append(r.classes, names)
	return nil
}

func (r *reader) object(depth int) (any, error) {
	tag, err := r.byte()
	if err != nil {
		return nil, err
	}
	class := int(tag) - 0x60
	if tag == 'O' {
		if class, err = r.int(); err != nil {
			return nil, err
		}
	}
	if class < 0 || class >= len(r.classes) {
		return nil, fmt.Errorf("hessian2: an object of no class")
	}
	all := map[string]any{}
	r.begin()(all)
	for _, name := range r.classes[class] {
		if all[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// strings reads a list of strings, or null.
func (r *reader) strings() ([]string, error) {
	v, err := r.value(0)
	if err != nil || v == nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("hessian2: want a list, got %T", v)
	}
	var all []string
	for _, one := range list {
		text, ok := one.(string)
		if !ok {
			return nil, fmt.Errorf("hessian2: want a list of strings, with a %T in it", one)
		}
		all = append(all, text)
	}
	return all, nil
}

// typeName skips the name of a type, or the number of one that was there before.
func (r *reader) typeName() error {
	if len(r.rest) == 0 {
		return errShort
	}
	if isInt(r.rest[0]) {
		_, err := r.int()
		return err
	}
	_, err := r.string()
	return err
}

// isLong reports whether an integer of 64 bits begins, as dubbo-go writes ports.
func isLong(tag byte) bool {
	return tag >= 0xd8 || tag >= 0x38 && tag <= 0x3f || tag == 'Y' || tag == 'L'
}

func (r *reader) long() (int, error) {
	tag, err := r.byte()
	if err != nil {
		return 0, err
	}
	more, high := 0, 0
	switch {
	case tag == 'L':
		more = 8
	case tag == 'Y':
		more = 4
	case tag >= 0xf0:
		more, high = 1, int(tag)-0xf8
	case tag >= 0xd8:
		return int(tag) - 0xe0, nil
	default:
		more, high = 2, int(tag)-0x3c
	}
	if len(r.rest) < more {
		return 0, errShort
	}
	b := r.rest[:more]
	r.rest = r.rest[more:]
	switch more {
	case 8:
		return int(binary.BigEndian.Uint64(b)), nil //nolint:gosec // it is one of 64 bits
	case 4:
		return int(int32(binary.BigEndian.Uint32(b))), nil //nolint:gosec // it is one of 32 bits
	}
	for _, c := range b {
		high = high<<8 + int(c)
	}
	return high, nil
}

func isInt(tag byte) bool { return tag >= 0x80 && tag <= 0xd7 || tag == 'I' }

// int reads an integer.
func (r *reader) int() (int, error) {
	tag, err := r.byte()
	if err != nil {
		return 0, err
	}
	more := 0
	switch {
	case tag >= 0x80 && tag <= 0xbf:
		return int(tag) - 0x90, nil
	case tag >= 0xc0 && tag <= 0xcf:
		more = 1
	case tag >= 0xd0 && tag <= 0xd7:
		more = 2
	case tag == 'I':
		more = 4
	default:
		return 0, fmt.Errorf("hessian2: want a number, got %#x", tag)
	}
	if len(r.rest) < more {
		return 0, errShort
	}
	b := r.rest[:more]
	r.rest = r.rest[more:]
	switch more {
	case 1:
		return (int(tag)-0xc8)<<8 + int(b[0]), nil
	case 2:
		return (int(tag)-0xd4)<<16 + int(b[0])<<8 + int(b[1]), nil
	}
	return int(int32(binary.BigEndian.Uint32(b))), nil //nolint:gosec // it is one of 32 bits
}

// string reads a string, which may be in several parts.
func (r *reader) string() (string, error) {
	var all []byte
	for {
		tag, err := r.byte()
		if err != nil {
			return "", err
		}
		units, last := 0, true
		switch {
		case tag == 'N':
			return "", nil
		case tag < 0x20:
			units = int(tag)
		case tag >= 0x30 && tag <= 0x33:
			low, err := r.byte()
			if err != nil {
				return "", err
			}
			units = int(tag-0x30)<<8 + int(low)
		case tag == 'S' || tag == 'R':
			if len(r.rest) < 2 {
				return "", errShort
			}
			units, last = int(binary.BigEndian.Uint16(r.rest)), tag == 'S'
			r.rest = r.rest[2:]
		default:
			return "", fmt.Errorf("hessian2: want a string, got %#x", tag)
		}
		part, err := r.units(units)
		if err != nil {
			return "", err
		}
		all = append(all, part...)
		if last {
			return string(all), nil
		}
	}
}

// units takes the bytes of that many UTF-16 units. A character outside of the basic plane is two of them, which some
// versions write as two characters of three bytes, and others as one of four.
func (r *reader) units(n int) ([]byte, error) {
	at := 0
	for n > 0 {
		if at >= len(r.rest) {
			return nil, errShort
		}
		width, counts := 1, 1
		switch c := r.rest[at]; {
		case c >= 0xf0:
			width, counts = 4, 2
		case c >= 0xe0:
			width = 3
		case c >= 0xc0:
			width = 2
		}
		at += width
		n -= counts
	}
	if at > len(r.rest) {
		return nil, errShort
	}
	part := r.rest[:at]
	r.rest = r.rest[at:]
	return part, nil
}
