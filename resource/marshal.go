package resource

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// MarshalYAML returns r as a YAML document that `kubectl apply` and Decode take, in the preferred version of its API.
// Fields of the spec that this version of the API does not know are not shown.
func MarshalYAML(r *Resource) ([]byte, error) {
	node, err := document(r)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return nil, fmt.Errorf("%s: encode YAML: %w", r.key, err)
	}
	return buf.Bytes(), enc.Close()
}

// MarshalJSON is like MarshalYAML, in JSON without line breaks.
func MarshalJSON(r *Resource) ([]byte, error) {
	node, err := document(r)
	if err != nil {
		return nil, err
	}
	return appendJSON(nil, node), nil
}

// document returns r as a tree.
func document(r *Resource) (*yaml.Node, error) {
	schema, ok := schemaByKind[r.key.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", r.key.Kind)
	}
	spec, err := r.Spec()
	if err != nil {
		return nil, err
	}
	meta := mapping("name", text(r.key.Name))
	if r.key.Namespace != "" {
		put(meta, "namespace", text(r.key.Namespace))
	}
	if len(r.labels) > 0 {
		put(meta, "labels", sortedMapping(r.labels, text))
	}
	if len(r.annotations) > 0 {
		put(meta, "annotations", sortedMapping(r.annotations, text))
	}
	if created := r.Own(); !created.IsZero() {
		put(meta, "creationTimestamp", text(created.Format(time.RFC3339Nano)))
	}
	return mapping(
		"apiVersion", text(schema.APIVersion()),
		"kind", text(string(schema.Kind)),
		"metadata", meta,
		"spec", messageNode(spec.ProtoReflect()),
	), nil
}

// messageNode returns m as the JSON mapping of protobuf has it, with the fields in the order of their declaration.
// Integers of 64 bits are numbers, as the CRDs want them, not strings.
func messageNode(m protoreflect.Message) *yaml.Node {
	switch v := m.Interface().(type) {
	case *durationpb.Duration:
		return text(formatDuration(v))
	case *timestamppb.Timestamp:
		return text(v.AsTime().Format(time.RFC3339Nano))
	case *structpb.Value:
		if fd := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); fd != nil && fd.Enum() == nil {
			return scalarNode(fd, m.Get(fd))
		}
		return plain("!!null", "null")
	}
	fields := m.Descriptor().Fields()
	if m.Descriptor().ParentFile().Package() == "google.protobuf" { // a wrapper, Struct or ListValue
		return fieldNode(fields.Get(0), m.Get(fields.Get(0)))
	}
	n := mapping()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if m.Has(fd) {
			put(n, fd.JSONName(), fieldNode(fd, m.Get(fd)))
		}
	}
	return n
}

func fieldNode(fd protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	switch {
	case fd.IsMap():
		entries := make(map[string]protoreflect.Value, v.Map().Len())
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries[k.String()] = v
			return true
		})
		return sortedMapping(entries, func(v protoreflect.Value) *yaml.Node { return scalarNode(fd.MapValue(), v) })
	case fd.IsList():
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.List().Len() {
			n.Content = append(n.Content, scalarNode(fd, v.List().Get(i)))
		}
		return n
	}
	return scalarNode(fd, v)
}

// scalarNode returns one value of fd, whether a scalar or a message.
func scalarNode(fd protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return messageNode(v.Message())
	case protoreflect.StringKind:
		return text(v.String())
	case protoreflect.BytesKind:
		return text(base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.EnumKind:
		if value := fd.Enum().Values().ByNumber(v.Enum()); value != nil {
			return text(string(value.Name()))
		}
		return plain("!!int", strconv.Itoa(int(v.Enum())))
	case protoreflect.BoolKind:
		return plain("!!bool", strconv.FormatBool(v.Bool()))
	case protoreflect.FloatKind:
		return number(v.Float(), 32)
	case protoreflect.DoubleKind:
		return number(v.Float(), 64)
	}
	return plain("!!int", v.String())
}

// number returns f in the form that both YAML and JSON read as the same number, or, if it has none, as a string.
func number(f float64, bits int) *yaml.Node {
	switch {
	case math.IsNaN(f):
		return text("NaN")
	case math.IsInf(f, 1):
		return text("Infinity")
	case math.IsInf(f, -1):
		return text("-Infinity")
	case f == math.Trunc(f) && math.Abs(f) < 1e15 && !(f == 0 && math.Signbit(f)):
		return plain("!!int", strconv.FormatFloat(f, 'f', -1, bits))
	}
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0" // -0, and integers that are too big to be read as such
	}
	return plain("!!float", s)
}

// formatDuration returns the seconds that d is, with as many digits as needed.
func formatDuration(d *durationpb.Duration) string {
	sign, seconds, nanos := "", d.Seconds, d.Nanos
	if seconds < 0 || nanos < 0 {
		sign, seconds, nanos = "-", -seconds, -nanos
	}
	s := fmt.Sprintf("%s%d.%09d", sign, seconds, nanos)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + "s"
}

// mapping returns a mapping of the keys and values given alternately.
func mapping(entries ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i < len(entries); i += 2 {
		put(n, entries[i].(string), entries[i+1].(*yaml.Node)) //nolint:gosec // entries are pairs
	}
	return n
}

func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, text(key), value)
}

func sortedMapping[V any](entries map[string]V, nodeOf func(V) *yaml.Node) *yaml.Node {
	n := mapping()
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		put(n, k, nodeOf(entries[k]))
	}
	return n
}

func plain(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// text returns a string, which the encoder puts in quotes if it would be read as something else by YAML 1.2, and we
// do if by 1.1.
func text(s string) *yaml.Node {
	n := plain("!!str", s)
	if _, old := oldBool(s); old || s == "<<" || s == "=" || base60(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// base60 reports whether s looks as numbers in base 60 do in YAML 1.1: "12:30".
func base60(s string) bool {
	return strings.Contains(s, ":") && strings.Trim(s, "0123456789:._+-") == ""
}

// appendJSON appends the tree n, which has no aliases, as JSON.
func appendJSON(b []byte, n *yaml.Node) []byte {
	switch n.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		for i := 0; i < len(n.Content); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendJSONText(b, n.Content[i].Value), ':')
			b = appendJSON(b, n.Content[i+1])
		}
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, item := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, item)
		}
		return append(b, ']')
	}
	if n.Tag == "!!str" {
		return appendJSONText(b, n.Value)
	}
	return append(b, n.Value...)
}

func appendJSONText(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can always be encoded
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
