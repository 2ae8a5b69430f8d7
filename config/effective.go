package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Setting is an effective value of a configuration.
type Setting struct {
	Key   string     // such as configSources[0].address
	Value *yaml.Node // a scalar
	From  string     // FILE:LINE, or "default"
}

// Effective returns the effective values: those of the files and, for keys that no file has, the defaults. root is the
// tree of all values. schema, the JSON schema of the configuration, has the defaults that c does not have.
func (c *Config) Effective(schema []byte) (root *yaml.Node, settings []Setting, err error) {
	var keys keySchema
	if err := json.Unmarshal(schema, &keys); err != nil {
		return nil, nil, err
	}
	e := effective{places: c.Places}
	return e.node(reflect.ValueOf(*c), &keys, ""), e.settings, e.err
}

// keySchema is the part of a JSON schema with the default of a key.
type keySchema struct {
	Properties   map[string]*keySchema
	Items, Then  *keySchema
	AnyOf, AllOf []*keySchema
	Default      json.RawMessage
}

// UnmarshalJSON also takes true, the schema of any value.
func (s *keySchema) UnmarshalJSON(data []byte) error {
	type plain keySchema
	if data[0] != '{' {
		return nil
	}
	return json.Unmarshal(data, (*plain)(s))
}

// forValue returns the schema of value: the mapping's if value has a short form as well, and that of its scheme if
// value is a source.
func (s *keySchema) forValue(value reflect.Value) *keySchema {
	if s == nil {
		return &keySchema{}
	}
	for _, form := range s.AnyOf {
		if form.Properties != nil {
			return form
		}
	}
	source, ok := reflect.TypeAssert[Source](value)
	if !ok {
		return s
	}
	schema := &keySchema{Properties: maps.Clone(s.Properties)}
	scheme, _, _ := schemeOf(source.Address)
	for i, candidate := range Schemes() {
		if candidate.label() == scheme.label() && i < len(s.AllOf) { // AllOf has the order of the schemes
			maps.Copy(schema.Properties, s.AllOf[i].Then.Properties)
			maps.Copy(schema.Properties, s.Properties)
		}
	}
	return schema
}

type effective struct {
	places   map[string]Problem
	settings []Setting
	err      error
}

// node returns the tree of value, the value of key; nil if it has none.
func (e *effective) node(value reflect.Value, schema *keySchema, key string) *yaml.Node {
	schema = schema.forValue(value)
	_, given := e.places[key]
	_, isText := reflect.TypeAssert[encoding.TextMarshaler](value)
	switch {
	case value.Kind() == reflect.Pointer && !value.IsNil():
		return e.node(value.Elem(), schema, key)
	case value.Type() == reflect.TypeFor[Guard]() && value.FieldByName("Off").Bool():
		return e.scalar("off", key)
	case value.Kind() == reflect.Struct && !isText:
		node := &yaml.Node{Kind: yaml.MappingNode}
		e.mapping(node, value, schema, key)
		// The settings of a source's scheme.
		if settings := value.FieldByName("Settings"); settings.IsValid() && !settings.IsNil() {
			e.mapping(node, settings.Elem().Elem(), schema, key)
		}
		if len(node.Content) == 0 {
			return nil
		}
		return node
	case value.IsZero() && !given:
		if schema.Default == nil {
			return nil
		}
		var fallback any
		e.err = errors.Join(e.err, yaml.Unmarshal(schema.Default, &fallback))
		return e.scalar(fallback, key)
	case value.Kind() == reflect.Slice:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range value.Len() {
			node.Content = append(node.Content, e.node(value.Index(i), schema.Items, fmt.Sprintf("%s[%d]", key, i)))
		}
		return node
	case value.Kind() == reflect.Map:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.SortedFunc(slices.Values(value.MapKeys()),
			func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name.String()},
				e.node(value.MapIndex(name), nil, key+"."+name.String()))
		}
		return node
	}
	return e.scalar(value.Interface(), key)
}

// mapping adds to node the fields of a struct that have a value.
func (e *effective) mapping(node *yaml.Node, value reflect.Value, schema *keySchema, key string) {
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case value.Type().Field(i).Anonymous:
			e.mapping(node, value.Field(i), schema, key)
		case name != "-":
			if child := e.node(value.Field(i), schema.Properties[name], strings.TrimPrefix(key+"."+name, ".")); child != nil {
				node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, child)
			}
		}
	}
}

// scalar returns a value of key, and adds it to the settings with its origin.
func (e *effective) scalar(value any, key string) *yaml.Node {
	node, from := new(yaml.Node), "default"
	e.err = errors.Join(e.err, node.Encode(value))
	if p, given := e.places[key]; given {
		from = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	e.settings = append(e.settings, Setting{key, node, from})
	return node
}
