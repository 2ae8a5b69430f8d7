package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

//go:generate go test . -run TestPageTables_Current -update

const pageFile = "../docs/configuration.md"

// TestPageTables_Current compares the tables of docs/configuration.md with the structs. `go generate ./config` writes
// them.
func TestPageTables_Current(t *testing.T) {
	const begin, end = "<!-- keys: begin -->\n", "<!-- keys: end -->"
	page, err := os.ReadFile(pageFile)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := before + begin + keys(t) + end + after
	if *update {
		require.NoError(t, os.WriteFile(pageFile, []byte(want), 0o644)) //nolint:gosec // a public file
		return
	}
	require.Equal(t, want, string(page), "run `go generate ./config`")
}

// TestDocumentedDefaults_Accepted holds of each default of the page that is a value that it can be written as one.
func TestDocumentedDefaults_Accepted(t *testing.T) {
	value := regexp.MustCompile("^`(.+)`$")
	tried := 0
	try := func(typ reflect.Type, prefix string) {
		for _, f := range fields(typ) {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || key == "" || key == "-" {
				continue
			}
			_, documented := describe(f)
			literal := value.FindStringSubmatch(documented)
			if literal == nil {
				continue
			}
			tried++
			text := fmt.Sprintf(prefix, key+": "+strconv.Quote(literal[1]))
			if k := bare(f.Type).Kind(); k == reflect.Int || k == reflect.Int64 && bare(f.Type) != reflect.TypeFor[config.Duration]() ||
				k == reflect.Bool {
				text = fmt.Sprintf(prefix, key+": "+literal[1])
			} else if k == reflect.Slice {
				text = fmt.Sprintf(prefix, key+": ["+strconv.Quote(literal[1])+"]")
			}
			_, err := config.Parse("t.yaml", []byte(text))
			require.NoError(t, err, text)
		}
	}
	files := "configSources: [{address: 'fs:///a'}]\n"
	try(reflect.TypeFor[config.Limits](), files+"limits: {%s}")
	try(reflect.TypeFor[config.Debounce](), files+"debounce: {%s}")
	try(reflect.TypeFor[config.Pacing](), files+"pacing: {%s}")
	try(reflect.TypeFor[config.History](), files+"history: {%s}")
	try(reflect.TypeFor[config.Listen](), files+"listen: {%s}")
	try(reflect.TypeFor[config.Admin](), files+"admin: {%s}")
	try(reflect.TypeFor[config.Config](), files+"%s")
	try(reflect.TypeFor[config.Guard](), "configSources: [{address: 'fs:///a', guard: {%s}}]")
	for _, s := range config.Schemes() {
		try(reflect.TypeOf(s.Settings()).Elem(), "configSources: [{address: '"+example(s)+"', %s}]")
	}
	require.Greater(t, tried, 100)
}

// section is a part of the page: the keys of a mapping.
type section struct {
	title, intro string
	typ          reflect.Type
}

// keys are the tables of all keys, in the order of the file.
func keys(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	sectionByType := map[reflect.Type]string{ // types with a section of their own, and its name
		reflect.TypeFor[config.Source]():      "configSources",
		reflect.TypeFor[config.TLSSettings](): "tlsSettings",
	}
	sections := []section{{"The file", "Keys of the file itself.", reflect.TypeFor[config.Config]()}}
	for _, structField := range fields(reflect.TypeFor[config.Config]()) {
		if typ, key := bare(structField.Type), keyOf(structField); key != "" && typ.Kind() == reflect.Struct {
			sectionByType[typ] = key
			sections = append(sections, section{key, structField.Tag.Get("jsonschema"), typ})
		} else if key != "" && typ.Kind() == reflect.Slice && bare(typ.Elem()).Kind() == reflect.Struct {
			sectionByType[bare(typ.Elem())] = key
			sections = append(sections, section{key, "A list. " + structField.Tag.Get("jsonschema"), bare(typ.Elem())})
		}
	}
	for _, f := range fields(reflect.TypeFor[config.Source]()) {
		if typ, key := bare(f.Type), keyOf(f); key != "" && typ.Kind() == reflect.Struct {
			sectionByType[typ] = key
			sections = append(sections, section{key, "Of each source. " + f.Tag.Get("jsonschema"), typ})
		}
	}
	for _, scheme := range config.Schemes() {
		var names []string
		for _, name := range scheme.Names {
			if name += "://"; scheme.Kind != "" {
				name += "…?kind=" + scheme.Kind
			}
			names = append(names, "`"+name+"`")
		}
		intro := "Of sources whose address is " + strings.Join(names, " or ") + ", beside those of [each source](#configsources)."
		sections = append(sections, section{title(scheme), intro, reflect.TypeOf(scheme.Settings()).Elem()})
	}
	sections = append(sections, section{
		"tlsSettings", "TLS of the connection to a source, of every scheme that has the key.",
		reflect.TypeFor[config.TLSSettings](),
	})
	for _, s := range sections {
		_, _ = fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | type | default | what it says |\n| --- | --- | --- | --- |\n", s.title, s.intro)
		rows(t, &b, "", s.typ, sectionByType)
	}
	return b.String() + "\n"
}

// rows writes a row for each key of a mapping, and for those of the mappings in it.
func rows(t *testing.T, b *strings.Builder, under string, typ reflect.Type, sectionByType map[reflect.Type]string) {
	t.Helper()
	for _, structField := range fields(typ) {
		key := keyOf(structField)
		if key == "" || structField.Anonymous {
			continue
		}
		require.NotEmpty(t, structField.Tag.Get("jsonschema"), structField.Name)
		description, byDefault := describe(structField)
		inner, list := bare(structField.Type), ""
		if inner.Kind() == reflect.Slice {
			inner, list = bare(inner.Elem()), "[]"
		}
		name := typeName(t, structField)
		place, elsewhere := sectionByType[inner]
		if elsewhere {
			name = fmt.Sprintf("[%s](#%s)", name, strings.ToLower(place))
		}
		_, _ = fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", under+key, name, byDefault, description)
		if inner.Kind() == reflect.Struct && !elsewhere {
			rows(t, b, under+key+list+".", inner, sectionByType)
		}
	}
}

var (
	// sayingDefault matches the sentence with the default in a description.
	sayingDefault = regexp.MustCompile(`\s*Default:? (.+?)\.(\s|$)`)
	// literal matches a default that is a value.
	literal = regexp.MustCompile(`^([0-9][0-9.]*(?:ns|us|ms|s|m|h|%)?(?:[0-9]+[smh])*|[0-9.]*:[0-9]+|[0-9.]+/[0-9]+|gzip|true|false|` +
		`{[a-z]+}\S*|[A-Z_]{2,}|[a-z]+(?:-[a-z]+)*)((?:(?:;|:|, which|, since) .*)?)$`)
)

// spoken are words in defaults that are no values.
var spoken = []string{"never", "derived", "all", "everything", "none"}

// describe splits the description of a key into its text and its default.
func describe(f reflect.StructField) (description, byDefault string) {
	description = strings.ReplaceAll(f.Tag.Get("jsonschema"), "|", `\|`)
	m := sayingDefault.FindStringSubmatchIndex(description)
	if m == nil {
		if !strings.Contains(f.Tag.Get("json"), ",omit") {
			byDefault = "**required**"
		} else if bare(f.Type).Kind() == reflect.Bool {
			byDefault = "`false`"
		}
		return description, byDefault
	}
	byDefault = description[m[2]:m[3]]
	description = strings.TrimSpace(description[:m[0]] + " " + strings.TrimSpace(description[m[4]:]))
	if l := literal.FindStringSubmatch(byDefault); l != nil && bare(f.Type).Kind() != reflect.Struct && !slices.Contains(spoken, l[1]) {
		byDefault = "`" + l[1] + "`" + l[2]
	}
	return description, byDefault
}

// defaultOf is the default of a key in JSON, if its description has one that is a value.
func defaultOf(structField reflect.StructField) json.RawMessage {
	_, byDefault := describe(structField)
	value := literalDefault.FindStringSubmatch(byDefault)
	if value == nil {
		return nil
	}
	switch typ := bare(structField.Type); {
	case typ.Kind() == reflect.Slice:
		return json.RawMessage("[" + strconv.Quote(value[1]) + "]")
	case typ.Kind() == reflect.Bool, typ.Kind() == reflect.Int, typ.Kind() == reflect.Int64 && typ != reflect.TypeFor[config.Duration]():
		return json.RawMessage(value[1])
	}
	return json.RawMessage(strconv.Quote(value[1]))
}

// literalDefault matches a default that is a value, without its remarks.
var literalDefault = regexp.MustCompile("^`([^`]+)`")

// typeName is the type of a key in the page, with its unit.
func typeName(t *testing.T, structField reflect.StructField) string {
	t.Helper()
	typ := bare(structField.Type)
	switch typ {
	case reflect.TypeFor[config.Duration]():
		return "duration"
	case reflect.TypeFor[config.Percent]():
		return "percentage"
	case reflect.TypeFor[config.Guard]():
		return "mapping or `off`"
	case reflect.TypeFor[config.Merge]():
		return "mapping or `endpoints`"
	}
	switch typ.Kind() {
	case reflect.Slice:
		if bare(typ.Elem()).Kind() == reflect.Struct {
			return "list of mappings"
		}
		return "list of texts"
	case reflect.Map:
		if typ.Elem().Kind() == reflect.String {
			return "map of texts"
		}
		return "map of integers"
	case reflect.Struct:
		return "mapping"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		if strings.Contains(structField.Name, "Bytes") || strings.Contains(structField.Tag.Get("jsonschema"), "in bytes") {
			return "integer, bytes"
		}
		if strings.HasSuffix(structField.Name, "PerSecond") {
			return "integer, a second"
		}
		return "integer"
	}
	t.Fatalf("%s has a type that the page has no word for: %s", structField.Name, typ)
	return ""
}

// title is the heading of a kind of source.
func title(scheme config.Scheme) string {
	if scheme.Kind != "" {
		return scheme.Names[0] + " of kind " + scheme.Kind
	}
	return scheme.Names[0]
}

// example is an address of a kind of source.
func example(s config.Scheme) string { return strings.ReplaceAll(s.Address, "%s", "h:1") }

// keyOf is the name that a field has in the file, if it has one.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if key == "-" {
		return ""
	}
	return key
}

// bare is a type without the pointer that says that it may be absent.
func bare(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
