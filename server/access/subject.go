package access

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A subject pattern has the format of RFC 4514. It is compared name by name, and never as a text: a comma inside a
// value does not end the name. A * stands for a non-empty value (CN=*), or for one or more names (*,O=Example).

// checkSubject returns an error for an invalid subject pattern.
func checkSubject(pattern string) error {
	names, err := parseSubject(pattern)
	if err != nil {
		return fmt.Errorf("%q: %w; want names as in CN=istiod,O=Example; a * stands for a whole value (CN=*), "+
			"or for one or more names (*,O=Example)", pattern, err)
	}
	for _, name := range names {
		previous := ""
		for attribute := range strings.SplitSeq(name, attributeSeparator) {
			kind, value, named := strings.Cut(attribute, "=")
			switch {
			case value == "" && named:
				return fmt.Errorf("%q: a name has no value", pattern)
			case kind == previous:
				return fmt.Errorf("%q: a name has one type twice", pattern)
			}
			previous = kind
		}
	}
	return nil
}

// matchSubject reports whether a pattern matches a subject, or subsumes another pattern.
func matchSubject(pattern, subject string) bool {
	expected, patternErr := parseSubject(pattern)
	names, err := parseSubject(subject)
	return patternErr == nil && err == nil && matchNames(expected, names)
}

// matchNames compares names with a pattern. After a mismatch, the last * matches one more name: certificates may have
// thousands of names.
func matchNames(pattern, names []string) bool {
	next, star, starEnd := 0, -1, 0
	for position := 0; position < len(names); position++ {
		switch {
		case next < len(pattern) && pattern[next] == anyNames:
			star, starEnd = next, position
			next++
		case next < len(pattern) && matchName(pattern[next], names[position]):
			next++
		case star >= 0:
			starEnd++
			next, position = star+1, starEnd
		default:
			return false
		}
	}
	return next == len(pattern)
}

func matchName(pattern, name string) bool {
	matched, _ := path.Match(pattern, name) // parseSubject makes valid patterns
	return matched
}

// attributeTypes are the object identifiers of the type names.
var attributeTypes = map[string]string{
	"CN": "2.5.4.3", "SERIALNUMBER": "2.5.4.5", "C": "2.5.4.6", "L": "2.5.4.7", "ST": "2.5.4.8", "STREET": "2.5.4.9",
	"O": "2.5.4.10", "OU": "2.5.4.11", "POSTALCODE": "2.5.4.17", "UID": "0.9.2342.19200300.100.1.1",
	"DC": "0.9.2342.19200300.100.1.25", "EMAILADDRESS": "1.2.840.113549.1.9.1",
}

var (
	objectIdentifier = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)
	// escapedText matches a value with escapes, and the blanks around it.
	escapedText = regexp.MustCompile(`^ *((?:[^\\"<>;*]|\\[0-9A-Fa-f]{2}|\\[,+"\\<>;#=* ])*?) *$`)
	escape      = regexp.MustCompile(`\\(?:[0-9A-Fa-f]{2}|.)`)
)

const (
	anyNames           = "*"
	anyAttributeValue  = "?*" // a non-empty value as a pattern of path.Match
	attributeSeparator = "/"  // the wildcards of path.Match do not match it
)

// parseSubject decodes the names of a subject or of a subject pattern. In a name, types are object identifiers, values
// are hexadecimal, and attributes are sorted, as in 2.5.4.3=6162/2.5.4.11=?*. Blanks around separators are ignored.
func parseSubject(subject string) (names []string, err error) {
	names = split(subject, ',')
	for i, name := range names {
		names[i] = strings.Trim(name, " ")
		if names[i] == anyNames {
			continue
		}
		attributes := split(name, '+')
		for index, attribute := range attributes {
			kind, value, ok := strings.Cut(attribute, "=")
			if !ok {
				return nil, fmt.Errorf("%q has no =", attribute)
			}
			kind = strings.ToUpper(strings.Trim(kind, " "))
			if identifier, named := attributeTypes[kind]; named {
				kind = identifier
			} else if !objectIdentifier.MatchString(kind) {
				return nil, fmt.Errorf("the type of %q is unknown; write a type without a name as its object identifier, "+
					"such as 2.5.4.3", attribute)
			}
			if strings.Trim(value, " ") == "*" {
				value = anyAttributeValue
			} else {
				decoded, err := parseValue(value)
				if err != nil {
					return nil, fmt.Errorf("%q: %w", attribute, err)
				}
				value = hex.EncodeToString([]byte(decoded))
			}
			attributes[index] = kind + "=" + value
		}
		slices.Sort(attributes)
		names[i] = strings.Join(attributes, attributeSeparator)
	}
	return names, nil
}

// parseValue decodes a value with escapes, or a # and its DER encoding.
func parseValue(text string) (value string, err error) {
	if encoded, ok := strings.CutPrefix(strings.Trim(text, " "), "#"); ok {
		der, err := hex.DecodeString(encoded)
		if err != nil {
			return "", err
		}
		rest, err := asn1.Unmarshal(der, &value)
		if err == nil && len(rest) > 0 {
			err = errors.New("bytes follow the value")
		}
		return value, err
	}
	groups := escapedText.FindStringSubmatch(text)
	if groups == nil {
		return "", errors.New(`write a \ before each of ,+"\<>;#=* inside a value, or \ and two hexadecimal digits`)
	}
	return escape.ReplaceAllStringFunc(groups[1], func(escaped string) string {
		if decoded, err := hex.DecodeString(escaped[1:]); err == nil {
			return string(decoded)
		}
		return escaped[1:]
	}), nil
}

// split splits a text at each separator without a backslash before it.
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
