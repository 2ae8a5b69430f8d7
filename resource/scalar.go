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

// scalar returns the value of a node for a field that is not a message. resolved is the target of the node. It reports
// errors.
func (d *decoder) scalar(
	field protoreflect.FieldDescriptor, node, resolved *yaml.Node,
) (value protoreflect.Value, ok bool) {
	switch field.Kind() {
	case protoreflect.StringKind:
		s, ok := d.str(node, resolved)
		return protoreflect.ValueOfString(s), ok
	case protoreflect.BoolKind:
		if b, ok := boolOf(resolved); ok {
			return protoreflect.ValueOfBool(b), true
		}
		d.fail(node, "want true or false, got %s", d.describe(resolved))
	case protoreflect.EnumKind:
		return d.enum(field.Enum(), node, resolved)
	case protoreflect.BytesKind:
		if b, err := base64Of(resolved); err == nil {
			return protoreflect.ValueOfBytes(b), true
		}
		d.fail(node, "want bytes in base64, got %s", d.describe(resolved))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if number, ok := floatOf(resolved); ok {
			if field.Kind() == protoreflect.DoubleKind {
				return protoreflect.ValueOfFloat64(number), true
			}
			if math.IsInf(number, 0) || math.Abs(number) <= math.MaxFloat32 || math.IsNaN(number) {
				return protoreflect.ValueOfFloat32(float32(number)), true
			}
		}
		d.fail(node, "want a number, got %s", d.describe(resolved))
	default:
		return d.integer(field, node, resolved)
	}
	return value, false
}

// str returns the string in a node. Numbers and the like are refused, as by kubectl: 1.10, 010 or no are ambiguous.
func (d *decoder) str(node, resolved *yaml.Node) (string, bool) {
	if isText(resolved) {
		return resolved.Value, true
	}
	if resolved.Kind == yaml.ScalarNode && !isNull(resolved) {
		d.fail(node, "want a string, got %s; put it in quotes", d.describe(resolved))
	} else {
		d.fail(node, "want a string, got %s", d.describe(resolved))
	}
	return "", false
}

func (d *decoder) enum(
	descriptor protoreflect.EnumDescriptor, node, resolved *yaml.Node,
) (number protoreflect.Value, ok bool) {
	values := descriptor.Values()
	switch {
	case resolved.Kind != yaml.ScalarNode:
	case resolved.Tag == "!!str":
		if value := values.ByName(protoreflect.Name(resolved.Value)); value != nil {
			return protoreflect.ValueOfEnum(value.Number()), true
		}
	case resolved.Tag == "!!int":
		if i, ok := intOf(resolved, 32); ok && values.ByNumber(protoreflect.EnumNumber(i)) != nil {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(i)), true
		}
	}
	names := make([]string, values.Len())
	for i := range names {
		names[i] = string(values.Get(i).Name())
	}
	if guess := words.Nearest(resolved.Value, names); guess != "" {
		d.fail(node, "want one of %s, got %s; did you mean %s?", enumerate(names), d.describe(resolved), guess)
	} else {
		d.fail(node, "want one of %s, got %s", enumerate(names), d.describe(resolved))
	}
	return number, false
}

func enumerate(names []string) string {
	if len(names) > 12 {
		names = append(slices.Clone(names[:11]), fmt.Sprintf("… (%d in all)", len(names)))
	}
	return strings.Join(names, ", ")
}

func (d *decoder) integer(
	field protoreflect.FieldDescriptor, node, resolved *yaml.Node,
) (value protoreflect.Value, ok bool) {
	switch field.Kind() {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		if i, ok := intOf(resolved, 32); ok {
			return protoreflect.ValueOfInt32(int32(i)), true
		}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		if i, ok := intOf(resolved, 64); ok {
			return protoreflect.ValueOfInt64(i), true
		}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if u, ok := uintOf(resolved, 32); ok {
			return protoreflect.ValueOfUint32(uint32(u)), true
		}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if u, ok := uintOf(resolved, 64); ok {
			return protoreflect.ValueOfUint64(u), true
		}
	}
	if _, ok := floatOf(resolved); ok {
		d.fail(node, "want an integer (%s), got %s", field.Kind(), d.describe(resolved))
	} else {
		d.fail(node, "want an integer, got %s", d.describe(resolved))
	}
	return value, false
}

// mapKey returns a key of a mapping as the key of a map.
func (d *decoder) mapKey(field protoreflect.FieldDescriptor, key *yaml.Node) (mapKey protoreflect.MapKey, ok bool) {
	if field.Kind() == protoreflect.StringKind {
		return protoreflect.ValueOfString(key.Value).MapKey(), true
	}
	// Keys are strings in JSON; these are written as numbers are.
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: key.Value, Line: key.Line, Column: key.Column}
	value, ok := d.integer(field, n, n)
	if !ok {
		return mapKey, false
	}
	return value.MapKey(), true
}

// isNull reports whether a node is null or missing.
func isNull(node *yaml.Node) bool {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!null" {
		return false
	}
	switch node.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false // text with the tag !!null
}

// isText reports whether a node is a string. As for kubectl, that includes times, and merge keys out of place.
func isText(node *yaml.Node) bool {
	if node.Kind != yaml.ScalarNode {
		return false
	}
	return node.Tag == "!!str" && !isOldBool(node) || node.Tag == "!!timestamp" || node.Tag == "!!merge"
}

// isOldBool reports whether a node is a word that is a boolean in YAML 1.1, and so for kubectl, but not in 1.2.
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

func boolOf(node *yaml.Node) (value, ok bool) {
	switch {
	case node.Kind != yaml.ScalarNode:
		return false, false
	case node.Tag == "!!bool":
		return strings.EqualFold(node.Value, "true"), true
	case isOldBool(node):
		return oldBool(node.Value)
	}
	return false, false
}

// intOf returns a node as an integer. A string counts if it holds a number as in JSON; a number with a fraction or
// exponent counts if its value is an integer.
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
	value, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 0, bits)
	if err != nil && text == "-0" {
		return 0, true
	}
	return value, err == nil
}

// integerText returns the text of an integer that strconv parses with base 0.
func integerText(node *yaml.Node) (string, bool) {
	if node.Kind != yaml.ScalarNode || len(node.Value) > 64 {
		return "", false
	}
	switch {
	case node.Tag == "!!int":
		return strings.ReplaceAll(node.Value, "_", ""), true
	case node.Tag == "!!float":
		return integral(strings.ReplaceAll(node.Value, "_", ""))
	case node.Tag == "!!str" && jsonNumber.MatchString(node.Value):
		if strings.ContainsAny(node.Value, ".eE") {
			return integral(node.Value)
		}
		return node.Value, true
	}
	return "", false
}

// integral converts a number with fraction or exponent, such as 1.0 or 5e3, to an integer of 64 bits, if it is one.
func integral(text string) (string, bool) {
	if _, exp, ok := strings.Cut(strings.ToLower(text), "e"); ok && len(exp) > 3 {
		return "", false // too big, or an expensive way to write 0
	}
	rational, ok := new(big.Rat).SetString(text)
	if !ok || !rational.IsInt() {
		return "", false
	}
	return rational.Num().String(), true
}

// floatOf returns a node as a number. A string counts if it holds a number as in JSON, or NaN, Infinity, -Infinity.
func floatOf(node *yaml.Node) (float64, bool) {
	if node.Kind != yaml.ScalarNode {
		return 0, false
	}
	switch node.Tag {
	case "!!int":
		text := strings.ReplaceAll(node.Value, "_", "")
		if i, err := strconv.ParseInt(text, 0, 64); err == nil {
			return float64(i), true
		}
		if u, err := strconv.ParseUint(text, 0, 64); err == nil {
			return float64(u), true
		}
		return parseFloat(text)
	case "!!float":
		switch strings.ToLower(node.Value) {
		case ".nan":
			return math.NaN(), true
		case ".inf", "+.inf":
			return math.Inf(1), true
		case "-.inf":
			return math.Inf(-1), true
		}
		return parseFloat(strings.ReplaceAll(node.Value, "_", ""))
	case "!!str":
		switch node.Value {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
		if jsonNumber.MatchString(node.Value) {
			return parseFloat(node.Value)
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

// base64Of returns the bytes of a node in base64, of the standard or the URL alphabet, padded or not.
func base64Of(node *yaml.Node) ([]byte, error) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" {
		return nil, fmt.Errorf("not a string")
	}
	encoding := base64.StdEncoding
	if strings.ContainsAny(node.Value, "-_") {
		encoding = base64.URLEncoding
	}
	if len(node.Value)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	return encoding.DecodeString(node.Value)
}

// isMistagged reports whether the document tags a node as a number or boolean, and its text is none.
func isMistagged(n *yaml.Node) bool {
	switch plain := (&yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}).ShortTag(); n.Tag {
	case "!!int", "!!float":
		return plain != "!!int" && plain != "!!float"
	case "!!bool":
		return plain != "!!bool"
	}
	return false
}

// describe describes a node for messages. It quotes no scalar of a document that may not be an object: a link may lead
// to a file of secrets.
func (d *decoder) describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return d.describe(node.Alias)
	}
	value := node.Value
	if len(value) > 60 {
		value = strings.ToValidUTF8(value[:60], "") + "…"
	}
	switch {
	case isNull(node):
		return "null"
	case !d.isObject:
		return "plain text"
	case isMistagged(node):
		return fmt.Sprintf("%q with the tag %s", value, node.Tag)
	case node.Tag == "!!bool", isOldBool(node):
		return "the boolean " + value
	case node.Tag == "!!int", node.Tag == "!!float":
		return "the number " + value
	case isText(node):
		return fmt.Sprintf("the string %q", value)
	}
	return fmt.Sprintf("%q with the tag %s, which is not supported", value, node.Tag)
}
