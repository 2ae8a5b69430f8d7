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

// MarshalYAML returns a resource as a YAML document that `kubectl apply` and Decode take, in the preferred version of
// its API. Unknown fields of the spec are not shown.
func MarshalYAML(resource *Resource) ([]byte, error) {
	node, err := document(resource)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	encoder := yaml.NewEncoder(&buffer)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return nil, fmt.Errorf("%s: encode YAML: %w", resource.key, err)
	}
	return buffer.Bytes(), encoder.Close()
}

// MarshalJSON is like MarshalYAML, in JSON without line breaks.
func MarshalJSON(r *Resource) ([]byte, error) {
	node, err := document(r)
	if err != nil {
		return nil, err
	}
	return appendJSON(nil, node), nil
}

// document returns a resource as a tree.
func document(resource *Resource) (*yaml.Node, error) {
	schema, ok := schemaByKind[resource.key.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", resource.key.Kind)
	}
	spec, err := resource.Spec()
	if err != nil {
		return nil, err
	}
	meta := mapping("name", text(resource.key.Name))
	if resource.key.Namespace != "" {
		put(meta, "namespace", text(resource.key.Namespace))
	}
	if len(resource.labels) > 0 {
		put(meta, "labels", sortedMapping(resource.labels, text))
	}
	if len(resource.annotations) > 0 {
		put(meta, "annotations", sortedMapping(resource.annotations, text))
	}
	if created := resource.Own(); !created.IsZero() {
		put(meta, "creationTimestamp", text(created.Format(time.RFC3339Nano)))
	}
	return mapping(
		"apiVersion", text(schema.APIVersion()),
		"kind", text(string(schema.Kind)),
		"metadata", meta,
		"spec", messageNode(spec.ProtoReflect()),
	), nil
}

// messageNode returns a message as the JSON mapping of protobuf has it, with the fields in the order of their
// declaration. Integers of 64 bits are numbers, as the CRDs require, not strings.
func messageNode(message protoreflect.Message) *yaml.Node {
	switch value := message.Interface().(type) {
	case *durationpb.Duration:
		return text(formatDuration(value))
	case *timestamppb.Timestamp:
		return text(value.AsTime().Format(time.RFC3339Nano))
	case *structpb.Value:
		if field := message.WhichOneof(message.Descriptor().Oneofs().Get(0)); field != nil && field.Enum() == nil {
			return scalarNode(field, message.Get(field))
		}
		return plain("!!null", "null")
	}
	fields := message.Descriptor().Fields()
	if message.Descriptor().ParentFile().Package() == "google.protobuf" { // a wrapper, Struct or ListValue
		return fieldNode(fields.Get(0), message.Get(fields.Get(0)))
	}
	node := mapping()
	for i := range fields.Len() {
		field := fields.Get(i)
		if message.Has(field) {
			put(node, field.JSONName(), fieldNode(field, message.Get(field)))
		}
	}
	return node
}

func fieldNode(field protoreflect.FieldDescriptor, value protoreflect.Value) *yaml.Node {
	switch {
	case field.IsMap():
		entries := make(map[string]protoreflect.Value, value.Map().Len())
		value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries[k.String()] = v
			return true
		})
		return sortedMapping(entries, func(v protoreflect.Value) *yaml.Node { return scalarNode(field.MapValue(), v) })
	case field.IsList():
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range value.List().Len() {
			node.Content = append(node.Content, scalarNode(field, value.List().Get(i)))
		}
		return node
	}
	return scalarNode(field, value)
}

// scalarNode returns one value of a field, whether a scalar or a message.
func scalarNode(field protoreflect.FieldDescriptor, content protoreflect.Value) *yaml.Node {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return messageNode(content.Message())
	case protoreflect.StringKind:
		return text(content.String())
	case protoreflect.BytesKind:
		return text(base64.StdEncoding.EncodeToString(content.Bytes()))
	case protoreflect.EnumKind:
		if value := field.Enum().Values().ByNumber(content.Enum()); value != nil {
			return text(string(value.Name()))
		}
		return plain("!!int", strconv.Itoa(int(content.Enum())))
	case protoreflect.BoolKind:
		return plain("!!bool", strconv.FormatBool(content.Bool()))
	case protoreflect.FloatKind:
		return number(content.Float(), 32)
	case protoreflect.DoubleKind:
		return number(content.Float(), 64)
	}
	return plain("!!int", content.String())
}

// number returns a value in the form that both YAML and JSON read as the same number, or, if it has none, as a string.
func number(value float64, bits int) *yaml.Node {
	switch {
	case math.IsNaN(value):
		return text("NaN")
	case math.IsInf(value, 1):
		return text("Infinity")
	case math.IsInf(value, -1):
		return text("-Infinity")
	case value == math.Trunc(value) && math.Abs(value) < 1e15 && !(value == 0 && math.Signbit(value)):
		return plain("!!int", strconv.FormatFloat(value, 'f', -1, bits))
	}
	digits := strconv.FormatFloat(value, 'g', -1, bits)
	if !strings.ContainsAny(digits, ".e") {
		digits += ".0" // -0, and integers that are too big to be read as such
	}
	return plain("!!float", digits)
}

// formatDuration returns a duration in seconds, with as many digits as needed.
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
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i < len(entries); i += 2 {
		put(node, entries[i].(string), entries[i+1].(*yaml.Node)) //nolint:gosec // entries are pairs
	}
	return node
}

func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, text(key), value)
}

func sortedMapping[V any](entries map[string]V, nodeOf func(V) *yaml.Node) *yaml.Node {
	node := mapping()
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		put(node, k, nodeOf(entries[k]))
	}
	return node
}

func plain(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// text returns a string. The encoder puts it in quotes if YAML 1.2 would read it as another type, and text does if YAML
// 1.1 would.
func text(s string) *yaml.Node {
	node := plain("!!str", s)
	if _, old := oldBool(s); old || s == "<<" || s == "=" || base60(s) {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}

// base60 reports whether a text looks like a number in base 60 of YAML 1.1: "12:30".
func base60(s string) bool {
	return strings.Contains(s, ":") && strings.Trim(s, "0123456789:._+-") == ""
}

// appendJSON appends a tree without aliases as JSON.
func appendJSON(b []byte, node *yaml.Node) []byte {
	switch node.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		for i := 0; i < len(node.Content); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendJSONText(b, node.Content[i].Value), ':')
			b = appendJSON(b, node.Content[i+1])
		}
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, item := range node.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, item)
		}
		return append(b, ']')
	}
	if node.Tag == "!!str" {
		return appendJSONText(b, node.Value)
	}
	return append(b, node.Value...)
}

func appendJSONText(b []byte, value string) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // a string can always be encoded
	return append(b, bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))...)
}
