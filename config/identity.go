package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"tributary/internal/address"
	"tributary/sources/transform"
)

// The lengths of what an identity and a reading are made of, in bytes.
const (
	identityName = 40
	identityHash = 8
	readingHash  = 4
)

// where is where a source reads.
type where struct {
	Address  string // the same for all that are the same
	Settings any    // of an xds source, what it asks for there
}

// Identity says where the source reads: by this a source is known from one configuration to the next, whatever
// it is called, and however often it looks. Paths count as absolute ones, and defaults count the same whether they are written out or
// not. It is fit for a file name, and begins in a way that people recognize.
func (s *Source) Identity() string {
	p := s.Settings.where(address.Shown(s.Address))
	name := nameOf(p.Address)
	return name[:min(len(name), identityName)] + "-" + hashOf(p, identityHash)
}

// Reading says what is read there and made of it: the transforms, the validation and the options. Sources of one identity
// and one reading publish the same. One of another reading is the same source, read anew. It is fit for a file name.
func (s *Source) Reading() string {
	made := struct {
		Transform *transform.Settings
		Lenient   bool
		Texts     any
	}{s.Transform, s.Validation == ValidationWarn, s.Settings.reading()}
	if rules, err := s.Rules(); err == nil && rules.Empty() {
		made.Transform = nil
	}
	return hashOf(made, readingHash)
}

// reading returns settings without what has no bearing on what is read and published: made is a copy of them, and defaults are those of their
// fields. The tag reading of a field is - if it has none, and set if the order of its elements has none.
func reading[S any](made S, defaults any) S {
	assign(&made, defaults)
	normalize(reflect.ValueOf(&made).Elem())
	return made
}

func normalize(v reflect.Value) {
	for i := range v.NumField() {
		field := v.Field(i)
		switch tag := v.Type().Field(i).Tag.Get("reading"); {
		case v.Type().Field(i).Anonymous:
			normalize(field)
		case tag == "-":
			field.SetZero()
		case tag == "set":
			names, _ := reflect.TypeAssert[[]string](field)
			field.Set(reflect.ValueOf(sorted(names)))
		}
	}
}

// assign sets the fields of the struct that to points to from the fields of the same names of another struct, as far as their types allow: a
// Duration is a time.Duration then.
func assign(to, from any) {
	if from != nil {
		assignFields(reflect.ValueOf(to).Elem(), reflect.ValueOf(from))
	}
}

func assignFields(to, from reflect.Value) {
	for i := range to.NumField() {
		field := to.Type().Field(i)
		if field.Anonymous {
			assignFields(to.Field(i), from)
		} else if value := from.FieldByName(field.Name); field.IsExported() && value.IsValid() && value.CanConvert(field.Type) {
			to.Field(i).Set(value.Convert(field.Type))
		}
	}
}

func hashOf(of any, n int) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("config: %v", err)) // a mistake in the structs, found by any test
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:n])
}

// sorted returns names of which the order says nothing.
func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
