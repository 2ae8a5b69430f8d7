package resource

import (
	"slices"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The conversion of YAML nodes into messages follows the JSON mapping of protobuf
// (https://protobuf.dev/programming-guides/json) as package protojson does. It goes without JSON text in between, for
// speed and so that every message has a line.

// message sets the fields of m from node. Fields with problems, which are reported, are left unset.
func (d *decoder) message(m protoreflect.Message, node *yaml.Node) {
	n, ok := d.visit(node)
	if !ok {
		return
	}
	defer d.leave(node)
	md := m.Descriptor()
	if md.ParentFile().Package() == "google.protobuf" {
		d.wellKnown(m, node, n)
		return
	}
	if n.Kind != yaml.MappingNode {
		if isNull(n) && len(d.at) == 1 {
			return // `spec:` with nothing in it
		}
		d.fail(node, "want a mapping, got %s", d.describe(n))
		return
	}
	fields := md.Fields()
	var seen []protoreflect.FieldNumber
	entries := d.entries(n)
	for i := 0; i < len(entries) && !d.full(); i += 2 {
		key, value := entries[i], entries[i+1]
		fd := fields.ByJSONName(key.Value)
		if fd == nil {
			fd = fields.ByTextName(key.Value)
		}
		if fd == nil {
			d.unknown(key, fieldNames(md))
			continue
		}
		if slices.Contains(seen, fd.Number()) {
			d.fail(key, "duplicate key %q: the field was set by its other name", key.Value)
			continue
		}
		seen = append(seen, fd.Number())
		d.at = append(d.at, step{name: key.Value})
		d.setField(m, fd, key, value)
		d.at = d.at[:len(d.at)-1]
	}
}

// setField sets the field fd of m from the value node.
func (d *decoder) setField(m protoreflect.Message, fd protoreflect.FieldDescriptor, key, node *yaml.Node) {
	n, ok := d.visit(node)
	if !ok {
		return
	}
	defer d.leave(node)
	if isNull(n) && !isValue(fd) {
		return // null is absent
	}
	switch {
	case fd.IsMap():
		d.mapField(m.Mutable(fd).Map(), fd, node, n)
		return
	case fd.IsList():
		d.listField(m.Mutable(fd).List(), fd, node, n)
		return
	}
	if oneof := fd.ContainingOneof(); oneof != nil {
		if other := m.WhichOneof(oneof); other != nil {
			d.fail(key, "only one of %q and %q can be set", other.JSONName(), fd.JSONName())
			return
		}
	}
	if fd.Message() != nil {
		d.message(m.Mutable(fd).Message(), node)
		return
	}
	if v, ok := d.scalar(fd, node, n); ok {
		m.Set(fd, v)
	}
}

func (d *decoder) listField(list protoreflect.List, fd protoreflect.FieldDescriptor, node, n *yaml.Node) {
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
		if fd.Message() != nil {
			v := list.NewElement()
			d.message(v.Message(), item)
			list.Append(v)
			continue
		}
		target, ok := d.visit(item)
		if !ok {
			break
		}
		if v, ok := d.scalar(fd, item, target); ok {
			list.Append(v)
		}
		d.leave(item)
	}
	d.at = d.at[:len(d.at)-1]
}

func (d *decoder) mapField(m protoreflect.Map, fd protoreflect.FieldDescriptor, node, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.fail(node, "want a mapping, got %s", d.describe(n))
		return
	}
	entries := d.entries(n)
	d.at = append(d.at, step{})
	for i := 0; i < len(entries) && !d.full(); i += 2 {
		key, value := entries[i], entries[i+1]
		d.at[len(d.at)-1].name = key.Value
		k, ok := d.mapKey(fd.MapKey(), key)
		if !ok {
			continue
		}
		if fd.MapValue().Message() != nil {
			v := m.NewValue()
			d.message(v.Message(), value)
			m.Set(k, v)
			continue
		}
		target, ok := d.visit(value)
		if !ok {
			break
		}
		if v, ok := d.scalar(fd.MapValue(), value, target); ok {
			m.Set(k, v)
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
