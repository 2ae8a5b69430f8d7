package resource

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The conversion of YAML nodes into messages follows the JSON mapping of protobuf
// (https://protobuf.dev/programming-guides/json) as package protojson does. It goes without JSON text in between, for
// speed and so that every message has a line.

// message sets the fields of m from node. Fields with problems, which are reported, are left unset.
func (d *decoder) message(message protoreflect.Message, node *yaml.Node) {
	n, ok := d.visit(node)
	if !ok {
		return
	}
	defer d.leave(node)
	descriptor := message.Descriptor()
	if descriptor.ParentFile().Package() == "google.protobuf" {
		d.wellKnown(message, node, n)
		return
	}
	if n.Kind != yaml.MappingNode {
		if isNull(n) && len(d.at) == 1 {
			return // `spec:` without a value
		}
		d.fail(node, "want a mapping, got %s", d.describe(n))
		return
	}
	fields := descriptor.Fields()
	var seen []protoreflect.FieldNumber
	entries := d.entries(n)
	for i := 0; i < len(entries) && !d.full(); i += 2 {
		key, value := entries[i], entries[i+1]
		field := fields.ByJSONName(key.Value)
		if field == nil {
			field = fields.ByTextName(key.Value)
		}
		if field == nil {
			d.unknown(key, fieldNames(descriptor))
			continue
		}
		if slices.Contains(seen, field.Number()) {
			d.fail(key, "duplicate key %q: the field was set by its other name", key.Value)
			continue
		}
		seen = append(seen, field.Number())
		d.at = append(d.at, step{name: key.Value})
		d.setField(message, field, key, value)
		d.at = d.at[:len(d.at)-1]
	}
}

// setField sets the field fd of m from the value node.
func (d *decoder) setField(message protoreflect.Message, field protoreflect.FieldDescriptor, key, node *yaml.Node) {
	n, ok := d.visit(node)
	if !ok {
		return
	}
	defer d.leave(node)
	if isNull(n) && !isValue(field) {
		return // null is absent
	}
	switch {
	case field.IsMap():
		d.mapField(message.Mutable(field).Map(), field, node, n)
		return
	case field.IsList():
		d.listField(message.Mutable(field).List(), field, node, n)
		return
	}
	if oneof := field.ContainingOneof(); oneof != nil {
		if other := message.WhichOneof(oneof); other != nil {
			d.fail(key, "only one of %q and %q can be set", other.JSONName(), field.JSONName())
			return
		}
	}
	if field.Message() != nil {
		d.message(message.Mutable(field).Message(), node)
		return
	}
	if v, ok := d.scalar(field, node, n); ok {
		message.Set(field, v)
	}
}

func (d *decoder) listField(list protoreflect.List, field protoreflect.FieldDescriptor, node, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		d.fail(node, "want a list, got %s", d.describe(n))
		return
	}
	d.at = append(d.at, step{})
	for i, item := range n.Content {
		if d.full() {
			break
		}
		d.at[len(d.at)-1].index = i
		if field.Message() != nil {
			v := list.NewElement()
			d.message(v.Message(), item)
			list.Append(v)
			continue
		}
		target, ok := d.visit(item)
		if !ok {
			break
		}
		if v, ok := d.scalar(field, item, target); ok {
			list.Append(v)
		}
		d.leave(item)
	}
	d.at = d.at[:len(d.at)-1]
}

func (d *decoder) mapField(m protoreflect.Map, field protoreflect.FieldDescriptor, node, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.fail(node, "want a mapping, got %s", d.describe(n))
		return
	}
	entries := d.entries(n)
	d.at = append(d.at, step{})
	for i := 0; i < len(entries) && !d.full(); i += 2 {
		key, value := entries[i], entries[i+1]
		d.at[len(d.at)-1].name = key.Value
		mapKey, ok := d.mapKey(field.MapKey(), key)
		if !ok {
			continue
		}
		if field.MapValue().Message() != nil {
			v := m.NewValue()
			d.message(v.Message(), value)
			m.Set(mapKey, v)
			continue
		}
		target, ok := d.visit(value)
		if !ok {
			break
		}
		if v, ok := d.scalar(field.MapValue(), value, target); ok {
			m.Set(mapKey, v)
		}
		d.leave(value)
	}
	d.at = d.at[:len(d.at)-1]
}

// isValue reports whether null is a value of the field, rather than its absence.
func isValue(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Value" && !fd.IsList() && !fd.IsMap()
}

// fieldNames returns the names that the fields of md have in YAML.
func fieldNames(md protoreflect.MessageDescriptor) []string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = md.Fields().Get(i).JSONName()
	}
	return names
}

// wellKnown sets m, one of the types of google.protobuf that have a form of their own in JSON. Istio's API has no
// others than these; a test holds that.
func (d *decoder) wellKnown(message protoreflect.Message, node, n *yaml.Node) {
	switch v := message.Interface().(type) {
	case *durationpb.Duration:
		d.duration(v, node, n)
	case *timestamppb.Timestamp:
		if t, ok := d.time(node, n); ok {
			v.Seconds, v.Nanos = t.Unix(), int32(t.Nanosecond())
		}
	case *structpb.Struct:
		fd := message.Descriptor().Fields().ByName("fields")
		d.mapField(message.Mutable(fd).Map(), fd, node, n)
	case *structpb.ListValue:
		fd := message.Descriptor().Fields().ByName("values")
		d.listField(message.Mutable(fd).List(), fd, node, n)
	case *structpb.Value:
		d.value(v, node, n)
	default:
		field := message.Descriptor().Fields().ByName("value")
		if message.Descriptor().Fields().Len() != 1 || field == nil || field.IsList() || field.Message() != nil {
			d.fail(node, "fields of type %s are not supported", message.Descriptor().FullName())
			return
		}
		if v, ok := d.scalar(field, node, n); ok { // a wrapper: BoolValue and the like
			message.Set(field, v)
		}
	}
}

// value sets v. Scalars have the types that kubectl gives them.
func (d *decoder) value(value *structpb.Value, node, n *yaml.Node) {
	value.Kind = &structpb.Value_NullValue{}
	switch {
	case n.Kind == yaml.MappingNode:
		s := &structpb.Struct{}
		d.wellKnown(s.ProtoReflect(), node, n)
		value.Kind = &structpb.Value_StructValue{StructValue: s}
	case n.Kind == yaml.SequenceNode:
		l := &structpb.ListValue{}
		d.wellKnown(l.ProtoReflect(), node, n)
		value.Kind = &structpb.Value_ListValue{ListValue: l}
	case isNull(n):
	case n.Tag == "!!bool", isOldBool(n):
		b, _ := boolOf(n)
		value.Kind = &structpb.Value_BoolValue{BoolValue: b}
	case isText(n):
		value.Kind = &structpb.Value_StringValue{StringValue: n.Value}
	default:
		f, ok := floatOf(n)
		if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
			d.fail(node, "want a string, a finite number, a boolean, a mapping or a list, got %s", d.describe(n))
			return
		}
		value.Kind = &structpb.Value_NumberValue{NumberValue: f}
	}
}

// duration reads a duration in Go's form ("1m30s", "100ms", "1.5s"), which Istio's API server and istiod take, or in
// protobuf's: a decimal number of seconds up to about 10,000 years.
func (d *decoder) duration(v *durationpb.Duration, node, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		duration, err := time.ParseDuration(n.Value)
		if err == nil && strings.ContainsAny(n.Value, "smh") { // "0" is one for Go alone
			v.Seconds, v.Nanos = int64(duration/time.Second), int32(duration%time.Second)
			return
		}
		isNumber := strings.ContainsAny(n.Value, "0123456789") // ".s" is zero for the parser
		if isNumber && protojson.Unmarshal(strconv.AppendQuote(nil, n.Value), v) == nil {
			return
		}
	}
	d.fail(node, `want a duration such as "1.5s", got %s`, d.describe(n))
}
