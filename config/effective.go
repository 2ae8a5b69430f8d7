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

// Setting is a value of a configuration that is in force.
type Setting struct {
	Key   string     // such as configSources[0].address
	Value *yaml.Node // a scalar
	From  string     // FILE:LINE, or "default"
}

// Effective returns the values that are in force: those of the files and, of keys that no file has, the defaults. root is the tree of all
// values. The defaults that c does not have are those of schema, the JSON schema of the configuration.
func (c *Config) Effective(schema []byte) (root *yaml.Node, all []Setting, err error) {
	var s keySchema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, nil, err
	}
	e := effective{places: c.Places}
	return e.node(reflect.ValueOf(*c), &s, ""), e.all, e.err
}

// keySchema is the part of a JSON schema that says what the default of a key is.
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

// of returns the schema of v: where it has a short form as well, that of the mapping; of a source that of its scheme.
func (s *keySchema) of(v reflect.Value) *keySchema {
	if s == nil {
		return &keySchema{}
	}
	for _, form := range s.AnyOf {
		if form.Properties != nil {
			return form
		}
	}
	source, ok := reflect.TypeAssert[Source](v)
	if !ok {
		return s
	}
	made := &keySchema{Properties: maps.Clone(s.Properties)}
	scheme, _, _ := schemeOf(source.Address)
	for i, other := range Schemes() {
		if other.label() == scheme.label() && i < len(s.AllOf) { // which are in the order of the schemes
			maps.Copy(made.Properties, s.AllOf[i].Then.Properties)
			maps.Copy(made.Properties, s.Properties)
		}
	}
	return made
}

type effective struct {
	places map[string]Problem
	all    []Setting
	err    error
}

// node returns the tree of v, the value of key; nil if it has no value.
func (e *effective) node(v reflect.Value, s *keySchema, key string) *yaml.Node {
	s = s.of(v)
	_, given := e.places[key]
	_, isText := reflect.TypeAssert[encoding.TextMarshaler](v)
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return e.node(v.Elem(), s, key)
	case v.Type() == reflect.TypeFor[Guard]() && v.FieldByName("Off").Bool():
		return e.scalar("off", key)
	case v.Kind() == reflect.Struct && !isText:
		n := &yaml.Node{Kind: yaml.MappingNode}
		e.mapping(n, v, s, key)
		if settings := v.FieldByName("Settings"); settings.IsValid() && !settings.IsNil() { // of the scheme of a source
			e.mapping(n, settings.Elem().Elem(), s, key)
		}
		if len(n.Content) == 0 {
			return nil
		}
		return n
	case v.IsZero() && !given:
		if s.Default == nil {
			return nil
		}
		var value any
		e.err = errors.Join(e.err, yaml.Unmarshal(s.Default, &value))
		return e.scalar(value, key)
	case v.Kind() == reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, e.node(v.Index(i), s.Items, fmt.Sprintf("%s[%d]", key, i)))
		}
		return n
	case v.Kind() == reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.SortedFunc(slices.Values(v.MapKeys()),
			func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name.String()},
				e.node(v.MapIndex(name), nil, key+"."+name.String()))
		}
		return n
	}
	return e.scalar(v.Interface(), key)
}

// mapping adds the fields of the struct v that have a value to n.
func (e *effective) mapping(n *yaml.Node, v reflect.Value, s *keySchema, key string) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case v.Type().Field(i).Anonymous:
			e.mapping(n, v.Field(i), s, key)
		case name != "-":
			if value := e.node(v.Field(i), s.Properties[name], strings.TrimPrefix(key+"."+name, ".")); value != nil {
				n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
			}
		}
	}
}

// scalar returns a value of key, and notes where it is from.
func (e *effective) scalar(value any, key string) *yaml.Node {
	n, from := new(yaml.Node), "default"
	e.err = errors.Join(e.err, n.Encode(value))
	if p, given := e.places[key]; given {
		from = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	e.all = append(e.all, Setting{key, n, from})
	return n
}
