package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
)

// What is needed of hessian2 (http://hessian.caucho.com/doc/hessian-serialization.html): strings and a map to ask, and a list of strings
// to read.

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

// reader reads hessian2.
type reader struct{ rest []byte }

var errShort = errors.New("hessian2: it ends early")

func (r *reader) byte() (byte, error) {
	if len(r.rest) == 0 {
		return 0, errShort
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b, nil
}

// maxStrings is how many strings a list may have.
const maxStrings = 10_000

// strings reads a list of strings, of whatever type and form.
func (r *reader) strings() ([]string, error) {
	tag, err := r.byte()
	if err != nil {
		return nil, err
	}
	typed, length := false, -1
	switch {
	case tag == 'N':
		return nil, nil
	case tag == 'U' || tag == 'V':
		typed = true
	case tag == 'W' || tag == 'X':
	case tag >= 0x70 && tag <= 0x77:
		typed, length = true, int(tag-0x70)
	case tag >= 0x78 && tag <= 0x7f:
		length = int(tag - 0x78)
	default:
		return nil, fmt.Errorf("hessian2: want a list, got %#x", tag)
	}
	if typed {
		if err := r.typeName(); err != nil {
			return nil, err
		}
	}
	if tag == 'V' || tag == 'X' {
		if length, err = r.int(); err != nil {
			return nil, err
		}
	}
	var all []string
	for length < 0 || len(all) < length {
		if length < 0 && len(r.rest) > 0 && r.rest[0] == 'Z' {
			break
		}
		if len(all) == maxStrings {
			return nil, fmt.Errorf("hessian2: a list of more than %d strings", maxStrings)
		}
		s, err := r.string()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// typeName skips the name of a type, or the number of one that was there before.
func (r *reader) typeName() error {
	if len(r.rest) == 0 {
		return errShort
	}
	if t := r.rest[0]; t >= 0x80 && t <= 0xd7 || t == 'I' {
		_, err := r.int()
		return err
	}
	_, err := r.string()
	return err
}

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
