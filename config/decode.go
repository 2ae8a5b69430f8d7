package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tributary/internal/secret"
	"tributary/internal/words"
	"tributary/internal/yamldoc"
)

// decoder fills a struct from YAML and collects all problems, so that a run reports them all. The json tags of struct
// fields are their keys; embedded structs are inlined.
//
// yaml.Node.Decode is not used: it stops at the first error of some sorts, does not name columns, and turns numbers
// into strings.
type decoder struct {
	file        string
	places      map[string]Problem // of the values read, by key
	problems    []Problem
	warnings    []Problem
	variables   map[*yaml.Node]bool // the expanded scalars
	veil        secret.Veil         // hides secrets of the file in messages
	linkTargets map[string]string   // the targets of files that are links out of the directory of the configuration
}

func newDecoder(file string) *decoder {
	return &decoder{
		file: file, places: map[string]Problem{}, variables: map[*yaml.Node]bool{},
		linkTargets: map[string]string{},
	}
}

// err returns the problems as an *Error, or nil if there are none.
func (d *decoder) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	d.hide(d.problems)
	return &Error{Problems: d.problems}
}

// hide removes secrets from the messages of problems, and all text of files outside of the directory: the author of a
// link may have no right to read its target.
func (d *decoder) hide(problems []Problem) {
	for i := range problems {
		problem := &problems[i]
		problem.Message = d.veil.Hide(problem.Message)
		if target := d.linkTargets[problem.File]; target != "" {
			problem.Key, problem.Message = "", "at fault; the reason is not shown, since this is a link out of the directory: "+
				"`tributary validate "+target+"` shows it"
		}
	}
}

// problem notes a problem with the value of key. If the key is absent, the place is that of the closest key around it.
func (d *decoder) problem(key, format string, args ...any) {
	d.problemAt(d.place(key), format, args...)
}

func (d *decoder) problemAt(position Problem, format string, args ...any) {
	position.Message = fmt.Sprintf(format, args...)
	d.problems = append(d.problems, position)
}

// checkOneOf notes a problem with a value that is neither empty nor allowed.
func (d *decoder) checkOneOf(key, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		d.problem(key, "want %s, got %q", strings.Join(allowed, " or "), value)
	}
}

// warn notes a value that is valid but probably a mistake.
func (d *decoder) warn(key, format string, args ...any) {
	position := d.place(key)
	position.Message = fmt.Sprintf(format, args...)
	d.warnings = append(d.warnings, position)
}

// place returns the place of the value of key, or of the closest key around it.
func (d *decoder) place(key string) Problem {
	position, exists := d.places[key]
	for around := key; !exists && around != ""; position, exists = d.places[around] {
		around = around[:max(0, strings.LastIndexAny(around, ".["))]
	}
	position.File, position.Key = cmp.Or(position.File, d.file), key
	return position
}

// decode reads data, a single document, into the struct that target points to.
func (d *decoder) decode(data []byte, target any) {
	root, fault := yamldoc.Parse(data)
	d.hideSecrets(root)
	switch {
	case fault != nil && fault.Message == yamldoc.TextBehind:
		d.problemAt(Problem{File: d.file, Line: fault.Line, Column: max(fault.Column, 1)},
			"%s; the configuration is a single one", fault.Message)
	case fault != nil:
		d.problemAt(Problem{File: d.file, Line: fault.Line, Column: max(fault.Column, 1)}, "not valid YAML: %s",
			fault.Message)
	case root == nil:
		d.places[""] = Problem{File: d.file, Line: 1, Column: 1} // an empty file; check reports missing keys
	case isNull(root):
		d.places[""] = d.placeOf(root, "")
	default:
		d.value(root, reflect.ValueOf(target).Elem(), "")
	}
}

// hideSecrets hides the possible secrets of all scalars in messages of problems.
func (d *decoder) hideSecrets(node *yaml.Node) {
	if node == nil {
		return
	}
	if node.Kind == yaml.ScalarNode {
		d.veil.Cover(node.Value)
	}
	for _, child := range node.Content {
		d.hideSecrets(child)
	}
}

// value reads node, the value of key, into value. A key is a path such as configSources[0].address.
func (d *decoder) value(node *yaml.Node, value reflect.Value, key string) {
	d.places[key] = d.placeOf(node, key)
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	d.expand(node, key)
	if isNull(node) {
		if key == accessKey || strings.HasPrefix(key, accessKey+"[") {
			d.problem(key, "%s", emptyAccess)
		}
		return // a key without a value has its default
	}
	// the mapping of a type with a short form
	structured := value.Kind() == reflect.Struct && node.Kind == yaml.MappingNode
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](value.Addr()); ok && !structured {
		if node.Kind != yaml.ScalarNode || !isPlain(node) {
			d.wantType(node, key, "a single value")
		} else if err := text.UnmarshalText([]byte(node.Value)); err != nil {
			d.problem(key, "%v", err)
		} else if value.Type() == reflect.TypeFor[Duration]() && value.Int() == 0 {
			d.refuseZero(key, true)
		}
		return
	}
	if k := value.Kind(); d.variables[node] && (k == reflect.Bool || k == reflect.Int || k == reflect.Int64) {
		node.Tag, node.Style = "", 0 // the variable's value decides the type
		node.Tag = node.ShortTag()
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		d.value(node, value.Elem(), key)
	case reflect.Struct:
		if s, ok := reflect.TypeAssert[*Source](value.Addr()); ok {
			d.source(node, s, key)
			return
		}
		d.mapping(node, value, key)
	case reflect.Slice:
		d.sequence(node, value, key)
	case reflect.Map:
		d.dictionary(node, value, key)
	case reflect.String:
		if node.Kind != yaml.ScalarNode || node.Tag != "!!str" {
			d.wantType(node, key, "a string")
			return
		}
		value.SetString(node.Value)
	case reflect.Bool:
		var enabled bool
		if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Decode(&enabled) != nil {
			d.wantType(node, key, "true or false")
			return
		}
		value.SetBool(enabled)
	case reflect.Int, reflect.Int64:
		var i int64
		if node.Kind != yaml.ScalarNode || node.Tag != "!!int" || node.Decode(&i) != nil {
			d.wantType(node, key, "a whole number")
			return
		}
		value.SetInt(i)
		if i == 0 {
			d.refuseZero(key, false)
		}
	default:
		panic("config: no decoder for " + value.Type().String()) // a mistake in the structs, found by any test
	}
}

// refuseZero reports a key that is 0 where 0 stands for the default: the user probably means none, or no limit.
func (d *decoder) refuseZero(key string, isTime bool) {
	ofSource, limit := strings.HasPrefix(key, "configSources["), strings.HasPrefix(key, "limits.")
	switch last := key[strings.LastIndexByte(key, '.')+1:]; {
	case ofSource && (last == "precedence" || last == "priority" || last == "min"): // 0 is a valid value
	case limit && !isTime:
		d.problem(key, "0 is not a limit; leave the key out for the default, or write a negative number for none")
	case ofSource, limit, key == "pacing.most", key == "debounce.max":
		d.problem(key, "want more than 0; leave the key out for the default")
	}
}

func (d *decoder) sequence(node *yaml.Node, value reflect.Value, key string) {
	if node.Kind != yaml.SequenceNode {
		d.wantType(node, key, "a list")
		return
	}
	if len(node.Content) == 0 && strings.HasPrefix(key, accessKey+"[") {
		d.problem(key, "%s", emptyAccess)
	}
	start := value.Len() // entries of earlier files
	values := reflect.MakeSlice(value.Type(), start+len(node.Content), start+len(node.Content))
	reflect.Copy(values, value)
	value.Set(values)
	for i, entry := range node.Content {
		d.value(entry, value.Index(start+i), fmt.Sprintf("%s[%d]", key, start+i))
	}
}

// dictionary reads a mapping with arbitrary keys.
func (d *decoder) dictionary(node *yaml.Node, value reflect.Value, key string) {
	if node.Kind != yaml.MappingNode {
		d.wantType(node, key, "a mapping of keys to values")
		return
	}
	value.Set(reflect.MakeMap(value.Type()))
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, path := node.Content[i], key+"."+node.Content[i].Value
		if !d.isName(name, key) {
			continue
		}
		if value.MapIndex(reflect.ValueOf(name.Value)).IsValid() {
			d.problemAt(d.placeOf(name, path), "given twice")
			continue
		}
		element := reflect.New(value.Type().Elem()).Elem()
		d.value(node.Content[i+1], element, path)
		value.SetMapIndex(reflect.ValueOf(name.Value), element)
	}
}

func (d *decoder) mapping(node *yaml.Node, value reflect.Value, key string) {
	if node.Kind != yaml.MappingNode {
		d.wantType(node, key, "a mapping of keys to values")
		return
	}
	fields := fieldsOf(value)
	d.fields(node, fields, key, func(unknown string) string {
		names := sortedKeys(fields)
		if hint := misplacedKeys[strings.TrimPrefix(key+"."+unknown, ".")]; hint != "" {
			return "unknown key; " + hint
		}
		return "unknown key" + words.Suggestion(unknown, names) + "; known here: " + strings.Join(names, ", ")
	})
}

// misplacedKeys are keys that users write by mistake, with advice.
var misplacedKeys = map[string]string{
	"verify":      "run tributary verify --istiod URL or --envoy URL from a timer instead; it exits with 3 for a finding",
	"tls":         hintTLS,
	"listen.tls":  hintTLS,
	"adminTLS":    "the TLS of the admin server is listen.adminTLS",
	"listen.port": "the ports are in listen.xds and listen.admin, each as host:port",
	"sources":     "sources are the list configSources",
	"limits.connectionsPerSecond": "it was removed: delete it, and bound connections by limits.connectionsPerPeer and " +
		"limits.handshakeTimeout",
	"limits.requestsPerSecond":   "it was removed: delete it; needless requests are slowed down anyway",
	"limits.firstRequestTimeout": "it was removed: delete it; limits.streamsPerPeer bounds these streams",
	"limits.stuckFor":            "it was removed: delete it; a client that does not answer pings is gone after 40 s",
	"log":                        hintLog,
	"logging":                    hintLog,
	"logLevel":                   hintLog,
	"log_level":                  hintLog,
}

const (
	hintTLS = "TLS is listen.xdsTLS for clients, listen.adminTLS for the admin server, and tlsSettings for a source"
	hintLog = "logging is a matter of the flags --log-level and --log-format of serve"
)

// fields reads a mapping into fields. unknown returns the message for another key.
func (d *decoder) fields(n *yaml.Node, fields map[string]reflect.Value, key string, unknown func(key string) string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if !d.isName(name, key) {
			continue
		}
		path := name.Value
		if key != "" {
			path = key + "." + path
		}
		field, exists := fields[name.Value]
		previous, repeatedKey := d.places[path]
		switch first, repeated := seen[name.Value]; {
		case repeated:
			d.problemAt(d.placeOf(name, path), "given twice, first in line %d", first)
		case repeatedKey && previous.File != d.file && path != sourcesKey:
			d.problemAt(d.placeOf(name, path), "given twice, first in %s; only %s may stand in several files", previous.Place(),
				sourcesKey)
		case !exists:
			d.problemAt(d.placeOf(name, path), "%s", unknown(name.Value))
		default:
			d.value(value, field, path)
		}
		seen[name.Value] = name.Line
	}
}

// isName reports whether a key of the mapping at key is a name. It notes a problem if it is not.
func (d *decoder) isName(node *yaml.Node, key string) bool {
	if node.Kind == yaml.ScalarNode && isPlain(node) && !isNull(node) {
		return true
	}
	d.problemAt(d.placeOf(node, key), "want a name as the key")
	return false
}

// isPlain reports whether a scalar has no tag of an application.
func isPlain(node *yaml.Node) bool {
	switch node.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return true
	case "!!null":
		return isNull(node)
	}
	return false
}

// wantType notes that node is not of the expected type.
func (d *decoder) wantType(node *yaml.Node, key, expected string) {
	actual := ""
	switch {
	case node.Kind == yaml.MappingNode:
		actual = "a mapping"
	case node.Kind == yaml.SequenceNode:
		actual = "a list"
	case node.Tag == "!!str":
		actual = fmt.Sprintf("the string %q", node.Value)
	case expected == "a string":
		actual = fmt.Sprintf("%s; put it in quotes", node.Value)
	default:
		actual = node.Value
	}
	d.problem(key, "want %s, got %s", expected, actual)
}

func fieldsOf(value reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range value.NumField() {
		structField := value.Type().Field(i)
		if structField.Anonymous {
			maps.Copy(fields, fieldsOf(value.Field(i)))
			continue
		}
		if name, _, _ := strings.Cut(structField.Tag.Get("json"), ","); name != "-" {
			fields[name] = value.Field(i)
		}
	}
	return fields
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" &&
		slices.Contains([]string{"", "~", "null", "Null", "NULL"}, n.Value)
}

// placeOf returns the place of node, the value of key.
func (d *decoder) placeOf(n *yaml.Node, key string) Problem {
	return Problem{File: d.file, Line: n.Line, Column: n.Column, Key: key}
}

// variable matches $$, ${NAME}, and a malformed reference.
var variable = regexp.MustCompile(`\$\$|\$\{[^}]*\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME} in a scalar by the environment variable, once; $$ is a dollar sign. The value of a variable
// is never read as YAML.
func (d *decoder) expand(n *yaml.Node, key string) {
	if n.Kind != yaml.ScalarNode || d.variables[n] || !strings.Contains(n.Value, "$") {
		return
	}
	d.variables[n] = true
	n.Value = variable.ReplaceAllStringFunc(n.Value, func(reference string) string {
		if reference == "$$" {
			return "$"
		}
		name, closed := strings.CutSuffix(strings.TrimPrefix(reference, "${"), "}")
		value, isSet := os.LookupEnv(name)
		switch {
		case !closed || !variableName.MatchString(name):
			d.problemAt(d.placeOf(n, key), "want ${NAME} with letters, digits and _, or $$ for a dollar sign, got %s", reference)
		case !isSet:
			d.problemAt(d.placeOf(n, key), "the environment variable %s is not set", name)
		}
		d.veil.CoverVariable(reference, value)
		return value
	})
	d.veil.Cover(n.Value)
}

// Error lists all problems of a configuration, in the order of the file.
type Error struct {
	Problems []Problem
	Cause    error // of a single problem, or nil
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Problem is a defect of a configuration.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // 0 if the place is unknown
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"` // such as configSources[0].address
	Message string `json:"message"`
}

// String returns "file:line:column: key: message".
func (p Problem) String() string { return p.Place() + ": " + p.Text() }

// Place returns "file:line:column", or the file alone if the line is unknown.
func (p Problem) Place() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Text returns "key: message".
func (p Problem) Text() string {
	if p.Key == "" {
		return p.Message
	}
	return p.Key + ": " + p.Message
}
