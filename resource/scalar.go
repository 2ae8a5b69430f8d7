package resource

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tributary/internal/words"
)

// scalar returns the value of a node of target n for fd, which is not a message. It reports errors.
func (d *decoder) scalar(fd protoreflect.FieldDescriptor, node, n *yaml.Node) (v protoreflect.Value, ok bool) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		s, ok := d.str(node, n)
		return protoreflect.ValueOfString(s), ok
	case protoreflect.BoolKind:
		if b, ok := boolOf(n); ok {
			return protoreflect.ValueOfBool(b), true
		}
		d.fail(node, "want true or false, got %s", d.describe(n))
	case protoreflect.EnumKind:
		return d.enum(fd.Enum(), node, n)
	case protoreflect.BytesKind:
		if b, err := base64Of(n); err == nil {
			return protoreflect.ValueOfBytes(b), true
		}
		d.fail(node, "want bytes in base64, got %s", d.describe(n))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if f, ok := floatOf(n); ok {
			if fd.Kind() == protoreflect.DoubleKind {
				return protoreflect.ValueOfFloat64(f), true
			}
			if math.IsInf(f, 0) || math.Abs(f) <= math.MaxFloat32 || math.IsNaN(f) {
				return protoreflect.ValueOfFloat32(float32(f)), true
			}
		}
		d.fail(node, "want a number, got %s", d.describe(n))
	default:
		return d.integer(fd, node, n)
	}
	return v, false
}

// str returns the string in a node. Numbers and the like are refused, as by kubectl: 1.10, 010 or no are ambiguous.
func (d *decoder) str(node, n *yaml.Node) (string, bool) {
	if isText(n) {
		return n.Value, true
	}
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		d.fail(node, "want a string, got %s; put it in quotes", d.describe(n))
	} else {
		d.fail(node, "want a string, got %s", d.describe(n))
	}
	return "", false
}

func (d *decoder) enum(ed protoreflect.EnumDescriptor, node, n *yaml.Node) (v protoreflect.Value, ok bool) {
	values := ed.Values()
	switch {
	case n.Kind != yaml.ScalarNode:
	case n.Tag == "!!str":
		if value := values.ByName(protoreflect.Name(n.Value)); value != nil {
			return protoreflect.ValueOfEnum(value.Number()), true
		}
	case n.Tag == "!!int":
		if i, ok := intOf(n, 32); ok && values.ByNumber(protoreflect.EnumNumber(i)) != nil {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(i)), true
		}
	}
	names := make([]string, values.Len())
	for i := range names {
		names[i] = string(values.Get(i).Name())
	}
	if guess := words.Nearest(n.Value, names); guess != "" {
		d.fail(node, "want one of %s, got %s; did you mean %s?", enumerate(names), d.describe(n), guess)
	} else {
		d.fail(node, "want one of %s, got %s", enumerate(names), d.describe(n))
	}
	return v, false
}

func enumerate(names []string) string {
	if len(names) > 12 {
		names = append(slices.Clone(names[:11]), fmt.Sprintf("… (%d in all)", len(names)))
	}
	return strings.Join(names, ", ")
}

func (d *decoder) integer(fd protoreflect.FieldDescriptor, node, n *yaml.Node) (v protoreflect.Value, ok bool) {
	switch fd.Kind() {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		if i, ok := intOf(n, 32); ok {
			return protoreflect.ValueOfInt32(int32(i)), true
		}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		if i, ok := intOf(n, 64); ok {
			return protoreflect.ValueOfInt64(i), true
		}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if u, ok := uintOf(n, 32); ok {
			return protoreflect.ValueOfUint32(uint32(u)), true
		}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if u, ok := uintOf(n, 64); ok {
			return protoreflect.ValueOfUint64(u), true
		}
	}
	if _, ok := floatOf(n); ok {
		d.fail(node, "want an integer (%s), got %s", fd.Kind(), d.describe(n))
	} else {
		d.fail(node, "want an integer, got %s", d.describe(n))
	}
	return v, false
}

// mapKey returns key as one of a map.
func (d *decoder) mapKey(fd protoreflect.FieldDescriptor, key *yaml.Node) (k protoreflect.MapKey, ok bool) {
	if fd.Kind() == protoreflect.StringKind {
		return protoreflect.ValueOfString(key.Value).MapKey(), true
	}
	// Keys are strings in JSON; these are written as numbers are.
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: key.Value, Line: key.Line, Column: key.Column}
	v, ok := d.integer(fd, n, n)
	if !ok {
		return k, false
	}
	return v.MapKey(), true
}

// isNull reports whether n is null or missing.
func isNull(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!null" {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false // text with the tag !!null
}

// isText reports whether n is a string. As for kubectl, that includes times, and merge keys out of place.
func isText(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	return n.Tag == "!!str" && !isOldBool(n) || n.Tag == "!!timestamp" || n.Tag == "!!merge"
}

// isOldBool reports whether n is one of the words that are booleans in YAML 1.1, and so for kubectl, but not in 1.2.
func isOldBool(n *yaml.Node) bool {
	_, ok := oldBool(n.Value)
	return ok && n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Style == 0
}

func oldBool(s string) (value, ok bool) {
	switch s {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

func boolOf(n *yaml.Node) (value, ok bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		return false, false
	case n.Tag == "!!bool":
		return strings.EqualFold(n.Value, "true"), true
	case isOldBool(n):
		return oldBool(n.Value)
	}
	return false, false
}

// intOf returns n as an integer. A string is one if it holds a number as in JSON; a number with a fraction or exponent
// is one if its value is.
func intOf(n *yaml.Node, bits int) (int64, bool) {
	text, ok := integerText(n)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(text, 0, bits)
	return i, err == nil
}

func uintOf(n *yaml.Node, bits int) (uint64, bool) {
	text, ok := integerText(n)
	if !ok {
		return 0, false
	}
	u, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 0, bits)
	if err != nil && text == "-0" {
		return 0, true
	}
	return u, err == nil
}

// integerText returns the text of an integer that strconv parses with base 0.
func integerText(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || len(n.Value) > 64 {
		return "", false
	}
	switch {
	case n.Tag == "!!int":
		return strings.ReplaceAll(n.Value, "_", ""), true
	case n.Tag == "!!float":
		return integral(strings.ReplaceAll(n.Value, "_", ""))
	case n.Tag == "!!str" && jsonNumber.MatchString(n.Value):
		if strings.ContainsAny(n.Value, ".eE") {
			return integral(n.Value)
		}
		return n.Value, true
	}
	return "", false
}

// integral returns a number with fraction or exponent, such as 1.0 or 5e3, as that of an integer, if it is one of 64
// bits.
func integral(s string) (string, bool) {
	if _, exp, ok := strings.Cut(strings.ToLower(s), "e"); ok && len(exp) > 3 {
		return "", false // too big, or an expensive way to write 0
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok || !r.IsInt() {
		return "", false
	}
	return r.Num().String(), true
}

// floatOf returns n as a number. A string is one if it holds a number as in JSON, or NaN, Infinity, -Infinity.
func floatOf(n *yaml.Node) (float64, bool) {
	if n.Kind != yaml.ScalarNode {
		return 0, false
	}
	switch n.Tag {
	case "!!int":
		text := strings.ReplaceAll(n.Value, "_", "")
		if i, err := strconv.ParseInt(text, 0, 64); err == nil {
			return float64(i), true
		}
		if u, err := strconv.ParseUint(text, 0, 64); err == nil {
			return float64(u), true
		}
		return parseFloat(text)
	case "!!float":
		switch strings.ToLower(n.Value) {
		case ".nan":
			return math.NaN(), true
		case ".inf", "+.inf":
			return math.Inf(1), true
		case "-.inf":
			return math.Inf(-1), true
		}
		return parseFloat(strings.ReplaceAll(n.Value, "_", ""))
	case "!!str":
		switch n.Value {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
		if jsonNumber.MatchString(n.Value) {
			return parseFloat(n.Value)
		}
	}
	return 0, false
}

func parseFloat(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// jsonNumber matches a number as JSON writes them.
var jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)

// base64Of returns the bytes that n stands for: base64, of the standard or the URL alphabet, padded or not.
func base64Of(n *yaml.Node) ([]byte, error) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		return nil, fmt.Errorf("not a string")
	}
	enc := base64.StdEncoding
	if strings.ContainsAny(n.Value, "-_") {
		enc = base64.URLEncoding
	}
	if len(n.Value)%4 != 0 {
		enc = enc.WithPadding(base64.NoPadding)
	}
	return enc.DecodeString(n.Value)
}

// isMistagged reports whether the document gives n the tag of a number or boolean that it is not.
func isMistagged(n *yaml.Node) bool {
	switch plain := (&yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}).ShortTag(); n.Tag {
	case "!!int", "!!float":
		return plain != "!!int" && plain != "!!float"
	case "!!bool":
		return plain != "!!bool"
	}
	return false
}

// describe describes n for messages. It quotes no scalar of a document that may not be an object: a link may lead to a
// file of secrets.
func (d *decoder) describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return d.describe(n.Alias)
	}
	value := n.Value
	if len(value) > 60 {
		value = strings.ToValidUTF8(value[:60], "") + "…"
	}
	switch {
	case isNull(n):
		return "null"
	case !d.isObject:
		return "plain text"
	case isMistagged(n):
		return fmt.Sprintf("%q with the tag %s", value, n.Tag)
	case n.Tag == "!!bool", isOldBool(n):
		return "the boolean " + value
	case n.Tag == "!!int", n.Tag == "!!float":
		return "the number " + value
	case isText(n):
		return fmt.Sprintf("the string %q", value)
	}
	return fmt.Sprintf("%q with the tag %s, which is not supported", value, n.Tag)
}
