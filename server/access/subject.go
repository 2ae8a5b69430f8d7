package access

import (
	"cmp"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// subjects are patterns of subjects in the form of RFC 4514, of which one is to match. A pattern is compared relative name by
// relative name, never as text, so that a comma within a value ends nothing. A * is for any value that is not empty (CN=*), or,
// in the place of names (*,O=Example), for one or more names.
type subjects []string

// CheckSubject says what is wrong with a pattern.
func CheckSubject(pattern string) error {
	names, err := parseSubject(pattern)
	if err != nil {
		return fmt.Errorf("%q: %w; want names as in CN=istiod,O=Example; a * stands for a whole value (CN=*), "+
			"or for one or more names (*,O=Example)", pattern, err)
	}
	for _, name := range names {
		for i, a := range name {
			switch {
			case a.value == "" && !a.wild:
				return fmt.Errorf("%q: a name has no value", pattern)
			case i > 0 && a.kind == name[i-1].kind:
				return fmt.Errorf("%q: a name has one type twice", pattern)
			}
		}
	}
	return nil
}

func (s subjects) match(subject string) bool {
	names, err := parseSubject(subject)
	return err == nil && slices.ContainsFunc(s, func(pattern string) bool {
		want, err := parseSubject(pattern)
		return err == nil && matchNames(want, names)
	})
}

// cover reports whether s matches every subject that one of others does.
func (s subjects) cover(others subjects) bool {
	return !slices.ContainsFunc(others, func(other string) bool { return !s.match(other) })
}

// relativeName is one name of a subject, in order of its types; nil is a *.
type relativeName []attribute

type attribute struct {
	kind  string // an object identifier
	value string
	wild  bool // the value is a *
}

// matchNames compares names with a pattern. After a mismatch, the last * takes one name more.
func matchNames(pattern, names []relativeName) bool {
	p, last, taken := 0, -1, 0
	for n := 0; n < len(names); n++ {
		switch {
		case p < len(pattern) && pattern[p] == nil:
			last, taken = p, n
			p++
		case p < len(pattern) && slices.EqualFunc(pattern[p], names[n], attribute.matches):
			p++
		case last >= 0:
			taken++
			p, n = last+1, taken
		default:
			return false
		}
	}
	return p == len(pattern)
}

func (a attribute) matches(other attribute) bool {
	return a == other || a.wild && a.kind == other.kind && other.value != ""
}

// identifiers are those of the types that have names.
var identifiers = map[string]string{
	"CN": "2.5.4.3", "SERIALNUMBER": "2.5.4.5", "C": "2.5.4.6", "L": "2.5.4.7", "ST": "2.5.4.8",
	"STREET": "2.5.4.9", "O": "2.5.4.10", "OU": "2.5.4.11",
	"POSTALCODE": "2.5.4.17", "UID": "0.9.2342.19200300.100.1.1", "DC": "0.9.2342.19200300.100.1.25", "EMAILADDRESS": "1.2.840.113549.1.9.1",
}

var identifier = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)

// parseSubject reads a subject in the form of RFC 4514, or a pattern of some. Blanks around separators are none of it.
func parseSubject(text string) ([]relativeName, error) {
	var names []relativeName
	for _, one := range split(text, ',') {
		if strings.Trim(one, " ") == "*" {
			names = append(names, nil)
			continue
		}
		var name relativeName
		for _, part := range split(one, '+') {
			kind, value, ok := strings.Cut(part, "=")
			kind = strings.ToUpper(strings.Trim(kind, " "))
			if !ok {
				return nil, fmt.Errorf("%q has no =", part)
			}
			if !identifier.MatchString(kind) {
				if kind, ok = identifiers[kind]; !ok {
					return nil, fmt.Errorf("the type of %q is unknown; a type without a name is written as its object identifier, such as 2.5.4.3", part)
				}
			}
			a := attribute{kind: kind}
			var err error
			if a.value, a.wild, err = parseValue(value); err != nil {
				return nil, fmt.Errorf("%q: %w", part, err)
			}
			name = append(name, a)
		}
		slices.SortFunc(name, func(a, b attribute) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.value, b.value)) })
		names = append(names, name)
	}
	return names, nil
}

// parseValue decodes the escapes of a value, or its encoding after a #.
func parseValue(text string) (value string, wild bool, err error) {
	text = strings.TrimLeft(text, " ")
	if encoded, ok := strings.CutPrefix(text, "#"); ok {
		der, err := hex.DecodeString(strings.Trim(encoded, " "))
		if err != nil {
			return "", false, err
		}
		rest, err := asn1.Unmarshal(der, &value)
		if err == nil && len(rest) > 0 {
			err = errors.New("the value goes on after its end")
		}
		return value, false, err
	}
	var b []byte
	end := 0 // of what is not a blank that may be dropped
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			decoded, n := unescape(text[i+1:])
			if n == 0 {
				return "", false, errors.New(`a \ stands before two hexadecimal digits, or one of ,+"\<>;#=* or a blank`)
			}
			b = append(b, decoded)
			i += n
			end = len(b)
		case strings.IndexByte(`"<>;`, c) >= 0:
			return "", false, fmt.Errorf(`a %c stands after a \`, c)
		case c == '*' && strings.Trim(text, " ") == "*":
			return "", true, nil
		case c == '*':
			return "", false, errors.New(`a * within a value stands after a \`)
		default:
			b = append(b, c)
			if c != ' ' {
				end = len(b)
			}
		}
	}
	return string(b[:end]), false, nil
}

// unescape decodes what stands after a backslash, in n bytes; n is 0 if that is no escape.
func unescape(text string) (decoded byte, n int) {
	if len(text) > 1 {
		if b, err := hex.DecodeString(text[:2]); err == nil {
			return b[0], 2
		}
	}
	if text != "" && strings.IndexByte(`,+"\<>;#=* `, text[0]) >= 0 {
		return text[0], 1
	}
	return 0, 0
}

// split splits text at each separator without a backslash before it.
func split(text string, separator byte) (parts []string) {
	start := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case separator:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}
