package metadata

import (
	"errors"
	"fmt"
	"unicode/utf16"
)

// A part of hessian2 (http://hessian.caucho.com/doc/hessian-serialization.html): writes strings and a map of strings,
// reads the values of metadata.

// appendString writes a string. Its length is counted in UTF-16 units.
func appendString(b []byte, text string) []byte {
	units := len(utf16.Encode([]rune(text)))
	switch {
	case units < 32:
		b = append(b, byte(units))
	case units < 1024:
		b = append(b, 0x30+byte(units>>8), byte(units))
	default:
		b = append(b, 'S', byte(units>>8), byte(units))
	}
	return append(b, text...)
}

// appendMap writes a map of strings.
func appendMap(b []byte, pairs ...[2]string) []byte {
	b = append(b, 'H')
	for _, p := range pairs {
		b = appendString(appendString(b, p[0]), p[1])
	}
	return append(b, 'Z')
}

// reader reads hessian2: null, booleans, numbers, strings, lists, maps, objects (as maps of their fields), and
// references. After an error all that it reads is zero.
type reader struct {
	rest    []byte
	err     error      // the first
	classes [][]string // the fields of each
	seen    []any      // the targets of references: lists, maps and objects, in the order of their begins
	values  int        // read so far
}

const (
	maxValues = 200_000
	maxDepth  = 16
)

var errShort = errors.New("hessian2: it ends early")

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

// take returns the next n bytes.
func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.fail(errShort)
		return make([]byte, n)
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

// accept reports whether a tag comes next, and takes it then.
func (r *reader) accept(tag byte) bool {
	if len(r.rest) > 0 && r.rest[0] == tag {
		r.rest = r.rest[1:]
		return true
	}
	return false
}

// value reads a value: nil, bool, int, string, []any or map[string]any.
func (r *reader) value(depth int) any {
	if r.values++; r.values > maxValues || depth > maxDepth {
		r.fail(fmt.Errorf("hessian2: more than %d values, or deeper than %d", maxValues, maxDepth))
	}
	if len(r.rest) == 0 {
		r.fail(errShort)
		return nil
	}
	switch tag := r.rest[0]; {
	case tag == 'N' || tag == 'T' || tag == 'F':
		r.take(1)
		return map[byte]any{'T': true, 'F': false}[tag]
	case kindOf(tag) >= 0:
		return r.number()
	case tag < 0x20 || tag >= 0x30 && tag <= 0x33 || tag == 'S' || tag == 'R':
		return r.string()
	case tag >= 'U' && tag <= 'X' || tag >= 0x70 && tag <= 0x7f:
		return r.list(depth)
	case tag == 'M' || tag == 'H':
		return r.dictionary(depth)
	case tag == 'C':
		r.class()
		return r.value(depth + 1)
	case tag == 'O' || tag >= 0x60 && tag <= 0x6f:
		return r.object(depth)
	case r.accept('Q'):
		if n := r.number(); n >= 0 && n < len(r.seen) {
			return r.seen[n]
		}
		r.fail(errors.New("hessian2: a reference to nothing"))
	default:
		r.fail(fmt.Errorf("hessian2: %#x is not read", tag))
	}
	return nil
}

// list reads a list. Until it is read, references to it are nil.
func (r *reader) list(depth int) any {
	index := len(r.seen)
	r.seen = append(r.seen, nil)
	tag := r.take(1)[0]
	if tag == 'U' || tag == 'V' || tag >= 0x70 && tag <= 0x77 {
		r.typeName()
	}
	length := -1 // until an end mark
	switch {
	case tag == 'V' || tag == 'X':
		length = r.number()
	case tag >= 0x70:
		length = int(tag & 7)
	}
	values := []any{}
	for r.err == nil && len(values) != length && (length >= 0 || !r.accept('Z')) {
		values = append(values, r.value(depth+1))
	}
	r.seen[index] = values
	return values
}

// begin adds a map that references may name.
func (r *reader) begin() map[string]any {
	fields := map[string]any{}
	r.seen = append(r.seen, fields)
	return fields
}

func (r *reader) dictionary(depth int) any {
	if r.take(1)[0] == 'M' {
		r.typeName()
	}
	fields := r.begin()
	for r.err == nil && !r.accept('Z') {
		key, value := r.value(depth+1), r.value(depth+1)
		if name, ok := key.(string); ok {
			fields[name] = value
		}
	}
	return fields
}

// class reads the definition of a class: its name and its fields.
func (r *reader) class() {
	r.take(1)
	r.string()
	n := r.number()
	if n > maxValues {
		r.fail(fmt.Errorf("hessian2: a class of %d fields", n))
	}
	var names []string
	for r.err == nil && len(names) < n {
		names = append(names, r.string())
	}
	r.classes = append(r.classes, names)
}

func (r *reader) object(depth int) any {
	class := int(r.take(1)[0]) - 0x60
	if class == 'O'-0x60 {
		class = r.number()
	}
	if class < 0 || class >= len(r.classes) {
		r.fail(errors.New("hessian2: an object of no class"))
		return nil
	}
	fields := r.begin()
	for _, name := range r.classes[class] {
		if r.err != nil {
			break
		}
		fields[name] = r.value(depth + 1)
	}
	return fields
}

// stringsOf returns a list of strings, or null.
func stringsOf(value any) (texts []string, err error) {
	list, ok := value.([]any)
	if !ok && value != nil {
		return nil, fmt.Errorf("hessian2: want a list, got %T", value)
	}
	for _, element := range list {
		text, ok := element.(string)
		if !ok {
			return nil, fmt.Errorf("hessian2: want a list of strings, with a %T in it", element)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// typeName skips the name of a type, or the number of one that was there before.
func (r *reader) typeName() {
	if len(r.rest) > 0 && kindOf(r.rest[0]) >= 0 {
		r.number()
		return
	}
	r.string()
}

// numbers are the encodings of integers of 32 and 64 bits; dubbo-go writes ports as the latter. The tags from first to
// last stand for the highest bits of a number (zero: 0), and more bytes follow.
var numbers = []struct {
	first, last, zero byte
	following         int
}{
	{0x80, 0xbf, 0x90, 0},
	{0xc0, 0xcf, 0xc8, 1},
	{0xd0, 0xd7, 0xd4, 2},
	{'I', 'I', 'I', 4},
	{0xd8, 0xef, 0xe0, 0},
	{0xf0, 0xff, 0xf8, 1},
	{0x38, 0x3f, 0x3c, 2},
	{'Y', 'Y', 'Y', 4},
	{'L', 'L', 'L', 8},
}

// kindOf returns the index in numbers of a tag; -1 if it begins no number.
func kindOf(tag byte) int {
	for n, k := range numbers {
		if tag >= k.first && tag <= k.last {
			return n
		}
	}
	return -1
}

func (r *reader) number() (n int) {
	tag := r.take(1)[0]
	index := kindOf(tag)
	if index < 0 {
		r.fail(fmt.Errorf("hessian2: want a number, got %#x", tag))
		return 0
	}
	kind := numbers[index]
	n = int(tag) - int(kind.zero)
	for _, b := range r.take(kind.following) {
		n = n<<8 + int(b)
	}
	if kind.following == 4 {
		return int(int32(n)) //nolint:gosec // it is one of 32 bits
	}
	return n
}

// string reads a string, which may be in several parts.
func (r *reader) string() string {
	var text []byte
	for last := false; !last; {
		units := 0
		switch tag := r.take(1)[0]; {
		case tag == 'N' || r.err != nil:
			return ""
		case tag < 0x20:
			units, last = int(tag), true
		case tag >= 0x30 && tag <= 0x33:
			units, last = int(tag-0x30)<<8+int(r.take(1)[0]), true
		case tag == 'S' || tag == 'R':
			size := r.take(2)
			units, last = int(size[0])<<8+int(size[1]), tag == 'S'
		default:
			r.fail(fmt.Errorf("hessian2: want a string, got %#x", tag))
			return ""
		}
		text = append(text, r.units(units)...)
	}
	return string(text)
}

// units takes the bytes of that many UTF-16 units. A character outside of the basic plane is two of them, which some
// versions write as two characters of three bytes, and others as one of four.
func (r *reader) units(n int) []byte {
	position := 0
	for n > 0 && position < len(r.rest) {
		width, counts := 1, 1
		switch first := r.rest[position]; {
		case first >= 0xf0:
			width, counts = 4, 2
		case first >= 0xe0:
			width = 3
		case first >= 0xc0:
			width = 2
		}
		position += width
		n -= counts
	}
	if n > 0 {
		r.fail(errShort)
		return nil
	}
	return r.take(position)
}
