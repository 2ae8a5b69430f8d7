package config_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"

	"tributary/sources/derive"
)

// TestSettingsReachTheirSource: each setting of a source is one of the package of the source, under the same name.
func TestSettingsReachTheirSource(t *testing.T) {
	for _, scheme := range config.Schemes() {
		settings := scheme.Settings()
		if _, double := settings.(*config.DubboConsul); double { // it has two results, and a test of its own
			continue
		}
		given := reflect.ValueOf(settings).Elem()
		names := fill(given)
		require.NotEmpty(t, names)
		sourceOptions := reflect.ValueOf(settings).MethodByName("Source").Call(nil)[0]
		for _, name := range names {
			if name == "TLSSettings" || name == "LabelTags" || name == "PartialStart" { // which have tests of their own
				continue
			}
			got := sourceOptions.FieldByName(name)
			if mapping := sourceOptions.FieldByName("Mapping"); mapping.IsValid() && (!got.IsValid() || got.Kind() == reflect.Interface) {
				got = mapping.FieldByName(name)
			}
			require.True(t, got.IsValid() && !got.IsZero(), "%s: %s", given.Type(), name)
		}
	}
}

// fill gives each field of a struct a value, and returns their names.
func fill(value reflect.Value) (names []string) {
	for i := range value.NumField() {
		field := value.Field(i)
		if value.Type().Field(i).Anonymous {
			names = append(names, fill(field)...)
			continue
		}
		names = append(names, value.Type().Field(i).Name)
		switch field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Int, reflect.Int64:
			field.SetInt(7)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		default:
			panic(field.Type().String())
		}
	}
	return names
}

// The derive setting changes the reading of the same files; without it, the reading is the same as before the setting
// existed.
func TestDerive_ChangesReading(t *testing.T) {
	source := func(text string) *config.Source {
		c := parsed(t, "t.yaml", "configSources: [{address: 'fs:///x', "+text+"}]")
		return &c.ConfigSources[0]
	}
	plain, derived := source("quietDelay: 1s"), source("derive: {}")
	require.NotEqual(t, plain.Reading(), derived.Reading())
	require.NotEqual(t, derived.Reading(), source("derive: {gatewayClasses: [a, b], ingressClass: x}").Reading())
	require.Equal(t, source("derive: {gatewayClasses: [a, b]}").Reading(), source("derive: {gatewayClasses: [b, a]}").Reading())
	require.Nil(t, plain.Settings.(*config.File).Source().Derive)
	got := source("derive: {domainSuffix: d, allServices: true, ingressNamespace: n}").Settings.(*config.File).Source().Derive
	require.Equal(t, &derive.Options{DomainSuffix: "d", AllServices: true, IngressNamespace: "n"}, got)
}
