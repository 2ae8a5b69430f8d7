package page

import (
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fill gives all exported fields below a value a content. Lists and maps get one element.
func fill(value reflect.Value, text string) {
	if value.Type() == reflect.TypeFor[time.Time]() {
		value.Set(reflect.ValueOf(noon))
		return
	}
	switch value.Kind() { //nolint:exhaustive // other kinds stay as they are
	case reflect.String:
		value.SetString(text)
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int64:
		value.SetInt(1)
	case reflect.Uint64:
		value.SetUint(1)
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), text)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(value.Index(0), text)
	case reflect.Map:
		key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		fill(key, text)
		fill(element, text)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, element)
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				fill(value.Field(i), text)
			}
		}
	}
}

// The template names fields that exist, also those of rare troubles, and escapes each.
func TestTemplate_FieldsExistAndAreEscaped(t *testing.T) {
	const text = "<script>alert(1)</script>"
	program := &program{}
	fill(reflect.ValueOf(&program.status).Elem(), text)
	fill(reflect.ValueOf(&program.explained).Elem(), text)
	fill(reflect.ValueOf(&program.quarantined).Elem(), text)
	fill(reflect.ValueOf(&program.heldSources).Elem(), text)
	fill(reflect.ValueOf(&program.problems).Elem(), text)
	fill(reflect.ValueOf(&program.shadows).Elem(), text)
	handler := newHandler(program)
	for _, path := range []string{"/", "/?show=quarantined", "/?object=ServiceEntry/shop/a"} {
		answer := get(t, handler, path)
		require.Equal(t, http.StatusOK, answer.Code, "%s: %s", path, answer.Body)
		require.NotContains(t, answer.Body.String(), text)
		require.Contains(t, answer.Body.String(), "&lt;script&gt;alert")
	}
}
