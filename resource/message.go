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

// message sets the fields of a message from a node. Fields with problems, which are reported, are left unset.
func (d *decoder) message(message protoreflect.Message, node *yaml.Node) {
	resolved, ok := d.visit(node)
	if !ok {
		return
	}
	defer d.leave(node)
	descriptor := message.Descriptor()
	if descriptor.ParentFile().Package() == "google.protobuf" {
		d.wellKnown(message, node, resolved)
		return
	}
	if resolved.Kind != yaml.MappingNode {
		if isNull(resolved) && len(d.fieldPath) == 1 {
			return // `spec:` without a value
		}
		d.fail(node, "want a mapping, got %s", d.describe(resolved))
		return
	}
	fields := descriptor.Fields()
	var seen []protoreflect.FieldNumber
	entries := d.entries(resolved)
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
		d.fieldPath = append(d.fieldPath, step{name: key.Value})
		d.setField(message, field, key, value)
		d.fieldPath = d.fieldPath[:len(d.fieldPath)-1]
	}
}

// setField sets a field of a message from the value node.
func (d *decoder) setField(message protoreflect.Message, field protoreflect.FieldDescriptor, key, node *yaml.Node) {
	resolved, ok := d.visit(node)
	if !ok {
		return
	}
	defer d.leave(node)
	if isNull(resolved) && !isValue(field) {
		return // null is absent
	}
	switch {
	case field.IsMap():
		d.mapField(message.Mutable(field).Map(), field, node, resolved)
		return
	case field.IsList():
		d.listField(message.Mutable(field).List(), field, node, resolved)
		return
	}
	if oneof := field.ContainingOneof(); oneof != nil {
		if present := message.WhichOneof(oneof); present != nil {
			d.fail(key, "only one of %q and %q can be set", present.JSONName(), field.JSONName())
			return
		}
	}
	if field.Message() != nil {
		d.message(message.Mutable(field).Message(), node)
		return
	}
	if value, ok := d.scalar(field, node, resolved); ok {
		message.Set(field, value)
	}
}

func (d *decoder) listField(list protoreflect.List, field protoreflect.FieldDescriptor, node, resolved *yaml.Node) {
	if resolved.Kind != yaml.SequenceNode {
		d.fail(node, "want a list, got %s", d.describe(resolved))
		return
	}
	d.fieldPath = append(d.fieldPath, step{})
	for i, item := range resolved.Content {
		if d.full() {
			break
		}
		d.fieldPath[len(d.fieldPath)-1].index = i
		if field.Message() != nil {
			value := list.NewElement()
			d.message(value.Message(), item)
			list.Append(value)
			continue
		}
		target, ok := d.visit(item)
		if !ok {
			break
		}
		if value, ok := d.scalar(field, item, target); ok {
			list.Append(value)
		}
		d.leave(item)
	}
	d.fieldPath = d.fieldPath[:len(d.fieldPath)-1]
}

func (d *decoder) mapField(result protoreflect.Map, field protoreflect.FieldDescriptor, node, resolved *yaml.Node) {
	if resolved.Kind != yaml.MappingNode {
		d.fail(node, "want a mapping, got %s", d.describe(resolved))
		return
	}
	entries := d.entries(resolved)
	d.fieldPath = append(d.fieldPath, step{})
	for i := 0; i < len(entries) && !d.full(); i += 2 {
		key, value := entries[i], entries[i+1]
		d.fieldPath[len(d.fieldPath)-1].name = key.Value
		mapKey, ok := d.mapKey(field.MapKey(), key)
		if !ok {
			continue
		}
		if field.MapValue().Message() != nil {
			v := result.NewValue()
			d.message(v.Message(), value)
			result.Set(mapKey, v)
			continue
		}
		target, ok := d.visit(value)
		if !ok {
			break
		}
		if v, ok := d.scalar(field.MapValue(), value, target); ok {
			result.Set(mapKey, v)
		}
		d.leave(value)
	}
	d.fieldPath = d.fieldPath[:len(d.fieldPath)-1]
}

// isValue reports whether null is a value of the field, rather than its absence.
func isValue(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Value" && !fd.IsList() && !fd.IsMap()
}

// fieldNames returns the names in YAML of the fields of a message.
func fieldNames(md protoreflect.MessageDescriptor) []string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = md.Fields().Get(i).JSONName()
	}
	return names
}

// wellKnown sets a message of a type of google.protobuf that has a form of its own in JSON. Istio's API uses no other
// such types than these; a test holds that.
func (d *decoder) wellKnown(message protoreflect.Message, node, resolved *yaml.Node) {
	switch typed := message.Interface().(type) {
	case *durationpb.Duration:
		d.duration(typed, node, resolved)
	case *timestamppb.Timestamp:
		if moment, ok := d.time(node, resolved); ok {
			typed.Seconds, typed.Nanos = moment.Unix(), int32(moment.Nanosecond())
		}
	case *structpb.Struct:
		fd := message.Descriptor().Fields().ByName("fields")
		d.mapField(message.Mutable(fd).Map(), fd, node, resolved)
	case *structpb.ListValue:
		fd := message.Descriptor().Fields().ByName("values")
		d.listField(message.Mutable(fd).List(), fd, node, resolved)
	case *structpb.Value:
		d.value(typed, node, resolved)
	default:
		field := message.Descriptor().Fields().ByName("value")
		if message.Descriptor().Fields().Len() != 1 || field == nil || field.IsList() || field.Message() != nil {
			d.fail(node, "fields of type %s are not supported", message.Descriptor().FullName())
			return
		}
		if value, ok := d.scalar(field, node, resolved); ok { // a wrapper: BoolValue and the like
			message.Set(field, value)
		}
	}
}

// value sets a value. Scalars have the types that kubectl gives them.
func (d *decoder) value(value *structpb.Value, node, resolved *yaml.Node) {
	value.Kind = &structpb.Value_NullValue{}
	switch {
	case resolved.Kind == yaml.MappingNode:
		s := &structpb.Struct{}
		d.wellKnown(s.ProtoReflect(), node, resolved)
		value.Kind = &structpb.Value_StructValue{StructValue: s}
	case resolved.Kind == yaml.SequenceNode:
		l := &structpb.ListValue{}
		d.wellKnown(l.ProtoReflect(), node, resolved)
		value.Kind = &structpb.Value_ListValue{ListValue: l}
	case isNull(resolved):
	case resolved.Tag == "!!bool", isOldBool(resolved):
		b, _ := boolOf(resolved)
		value.Kind = &structpb.Value_BoolValue{BoolValue: b}
	case isText(resolved):
		value.Kind = &structpb.Value_StringValue{StringValue: resolved.Value}
	default:
		number, ok := floatOf(resolved)
		if !ok || math.IsInf(number, 0) || math.IsNaN(number) {
			d.fail(node, "want a string, a finite number, a boolean, a mapping or a list, got %s", d.describe(resolved))
			return
		}
		value.Kind = &structpb.Value_NumberValue{NumberValue: number}
	}
}

// duration reads a duration in Go's form ("1m30s", "100ms", "1.5s"), which Istio's API server and istiod take, or in
// protobuf's: a decimal number of seconds up to about 10,000 years.
func (d *decoder) duration(result *durationpb.Duration, node, resolved *yaml.Node) {
	if resolved.Kind == yaml.ScalarNode && resolved.Tag == "!!str" {
		duration, err := time.ParseDuration(resolved.Value)
		if err == nil && strings.ContainsAny(resolved.Value, "smh") { // "0" is one for Go alone
			result.Seconds, result.Nanos = int64(duration/time.Second), int32(duration%time.Second)
			return
		}
		isNumber := strings.ContainsAny(resolved.Value, "0123456789") // ".s" is zero for the parser
		if isNumber && protojson.Unmarshal(strconv.AppendQuote(nil, resolved.Value), result) == nil {
			return
		}
	}
	d.fail(node, `want a duration such as "1.5s", got %s`, d.describe(resolved))
}
