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

// decoder fills a struct from YAML and collects what is wrong on the way, so that one run tells all. Struct fields are
// known by their json tags; embedded structs are inlined.
//
// yaml.Node.Decode is not used: it stops at the first error of some sorts, does not name columns, and turns numbers into
// strings.
type decoder struct {
	file     string
	places   map[string]Problem // of the values read, by key
	problems []Problem
	warnings []Problem
	expanded map[*yaml.Node]bool // those that name variables
	veil     secret.Veil         // over what may be secret in the file
	linked   map[string]string   // the targets of files that are links out of the directory of the configuration
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, places: map[string]Problem{}, expanded: map[*yaml.Node]bool{}, linked: map[string]string{}}
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

// hide removes secrets from the messages of problems, and the text of files that links lead to: the one who made the link may not be
// allowed to read them.
func (d *decoder) hide(problems []Problem) {
	for i := range problems {
		problem := &problems[i]
		problem.Message = d.veil.Hide(problem.Message)
		if target := d.linked[problem.File]; target != "" {
			problem.Key, problem.Message = "", "at fault; the reason is not shown, since this is a link out of the directory: "+
				"`tributary validate "+target+"` shows it"
		}
	}
}

// problem notes what is wrong with the value of key. If the key is absent, the place is that of the closest key around it.
func (d *decoder) problem(key, format string, args ...any) {
	d.problemAt(d.place(key), format, args...)
}

func (d *decoder) problemAt(at Problem, format string, args ...any) {
	at.Message = fmt.Sprintf(format, args...)
	d.problems = append(d.problems, at)
}

// warn is problem for what is valid and probably a mistake.
func (d *decoder) warn(key, format string, args ...any) {
	at := d.place(key)
	at.Message = fmt.Sprintf(format, args...)
	d.warnings = append(d.warnings, at)
}

// place returns the place of the value of key, or of the closest key around it.
func (d *decoder) place(key string) Problem {
	at, known := d.places[key]
	for around := key; !known && around != ""; at, known = d.places[around] {
		around = around[:max(0, strings.LastIndexAny(around, ".["))]
	}
	at.File, at.Key = cmp.Or(at.File, d.file), key
	return at
}

// decode reads data, which is one document and nothing else, into the struct that out points to.
func (d *decoder) decode(data []byte, out any) {
	root, fault := yamldoc.Parse(data)
	d.cover(root)
	switch {
	case fault != nil && fault.Message == yamldoc.TextBehind:
		d.problemAt(Problem{File: d.file, Line: fault.Line, Column: max(fault.Column, 1)}, "%s; the configuration is a single one", fault.Message)
	case fault != nil:
		d.problemAt(Problem{File: d.file, Line: fault.Line, Column: max(fault.Column, 1)}, "not valid YAML: %s", fault.Message)
	case root == nil:
		d.places[""] = Problem{File: d.file, Line: 1, Column: 1} // an empty file; what must be there is missed by check
	case isNull(root):
		d.places[""] = d.placeOf(root, "")
	default:
		d.value(root, reflect.ValueOf(out).Elem(), "")
	}
}

// cover has no problem show what may be secret in a text of the file, be it an address or not yet.
func (d *decoder) cover(n *yaml.Node) {
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode {
		d.veil.Cover(n.Value)
	}
	for _, child := range n.Content {
		d.cover(child)
	}
}

// value reads n into v. key is where n is, such as configSources[0].address.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string) {
	d.places[key] = d.placeOf(n, key)
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.expand(n, key)
	if isNull(n) {
		if key == accessKey || strings.HasPrefix(key, accessKey+"[") {
			d.problem(key, "%s", emptyAccess)
		}
		return // a key without a value says nothing
	}
	structured := v.Kind() == reflect.Struct && n.Kind == yaml.MappingNode // of a type that has a short form as well
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok && !structured {
		if n.Kind != yaml.ScalarNode || !isPlain(n) {
			d.want(n, key, "a single value")
		} else if err := u.UnmarshalText([]byte(n.Value)); err != nil {
			d.problem(key, "%v", err)
		} else if v.Type() == reflect.TypeFor[Duration]() && v.Int() == 0 {
			d.zero(key, true)
		}
		return
	}
	if k := v.Kind(); d.expanded[n] && (k == reflect.Bool || k == reflect.Int || k == reflect.Int64) {
		n.Tag, n.Style = "", 0 // it is what the variable says
		n.Tag = n.ShortTag()
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), key)
	case reflect.Struct:
		if s, ok := reflect.TypeAssert[*Source](v.Addr()); ok {
			d.source(n, s, key)
			return
		}
		d.mapping(n, v, key)
	case reflect.Slice:
		d.sequence(n, v, key)
	case reflect.Map:
		d.dictionary(n, v, key)
	case reflect.String:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
			d.want(n, key, "a string")
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		var b bool
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
			d.want(n, key, "true or false")
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		var i int64
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&i) != nil {
			d.want(n, key, "a whole number")
			return
		}
		v.SetInt(i)
		if i == 0 {
			d.zero(key, false)
		}
	default:
		panic("config: no decoder for " + v.Type().String()) // a mistake in the structs, found by any test
	}
}

// zero notes that a key is 0 which would then have its default without a word. Who writes 0 wishes for none, or for no limit.
func (d *decoder) zero(key string, isTime bool) {
	ofSource, limit := strings.HasPrefix(key, "configSources["), strings.HasPrefix(key, "limits.")
	switch last := key[strings.LastIndexByte(key, '.')+1:]; {
	case ofSource && (last == "precedence" || last == "priority" || last == "min"): // which may well be
	case limit && !isTime:
		d.problem(key, "0 is not a limit; leave the key out for the default, or write a negative number for none")
	case ofSource, limit, key == "pacing.most", key == "debounce.max":
		d.problem(key, "want more than 0; leave the key out for the default")
	}
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.SequenceNode {
		d.want(n, key, "a list")
		return
	}
	if len(n.Content) == 0 && strings.HasPrefix(key, accessKey+"[") {
		d.problem(key, "%s", emptyAccess)
	}
	start := v.Len() // of what the files before have
	all := reflect.MakeSlice(v.Type(), start+len(n.Content), start+len(n.Content))
	reflect.Copy(all, v)
	v.Set(all)
	for i, item := range n.Content {
		d.value(item, v.Index(start+i), fmt.Sprintf("%s[%d]", key, start+i))
	}
}

// dictionary reads a mapping of which the keys are free.
func (d *decoder) dictionary(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		d.want(n, key, "a mapping of keys to values")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, sub := n.Content[i], key+"."+n.Content[i].Value
		if !d.isName(name, key) {
			continue
		}
		if v.MapIndex(reflect.ValueOf(name.Value)).IsValid() {
			d.problemAt(d.placeOf(name, sub), "given twice")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(n.Content[i+1], value, sub)
		v.SetMapIndex(reflect.ValueOf(name.Value), value)
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		d.want(n, key, "a mapping of keys to values")
		return
	}
	fields := fieldsOf(v)
	d.fields(n, fields, key, func(unknown string) string {
		known := sortedKeys(fields)
		if hint := misplaced[strings.TrimPrefix(key+"."+unknown, ".")]; hint != "" {
			return "unknown key; " + hint
		}
		return "unknown key" + words.Suggestion(unknown, known) + "; known here: " + strings.Join(known, ", ")
	})
}

// misplaced are keys that people write, and what they mean.
var misplaced = map[string]string{
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

// fields reads a mapping of which the keys are those of fields. unknown says what is wrong with another key.
func (d *decoder) fields(n *yaml.Node, fields map[string]reflect.Value, key string, unknown func(key string) string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if !d.isName(name, key) {
			continue
		}
		sub := name.Value
		if key != "" {
			sub = key + "." + sub
		}
		field, known := fields[name.Value]
		other, elsewhere := d.places[sub]
		switch first, repeated := seen[name.Value]; {
		case repeated:
			d.problemAt(d.placeOf(name, sub), "given twice, first in line %d", first)
		case elsewhere && other.File != d.file && sub != sourcesKey:
			d.problemAt(d.placeOf(name, sub), "given twice, first in %s; only %s may stand in several files", other.Place(),
				sourcesKey)
		case !known:
			d.problemAt(d.placeOf(name, sub), "%s", unknown(name.Value))
		default:
			d.value(value, field, sub)
		}
		seen[name.Value] = name.Line
	}
}

// isName reports whether a key of the mapping at key is a name. If it is not, that is noted: it would be taken for another.
func (d *decoder) isName(n *yaml.Node, key string) bool {
	if n.Kind == yaml.ScalarNode && isPlain(n) && !isNull(n) {
		return true
	}
	d.problemAt(d.placeOf(n, key), "want a name as the key")
	return false
}

// isPlain reports whether a scalar means what it says, and not what a tag of somebody makes of it.
func isPlain(n *yaml.Node) bool {
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return true
	case "!!null":
		return isNull(n)
	}
	return false
}

// want notes that n is not of the sort that is wanted.
func (d *decoder) want(n *yaml.Node, key, what string) {
	got := ""
	switch {
	case n.Kind == yaml.MappingNode:
		got = "a mapping"
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case n.Tag == "!!str":
		got = fmt.Sprintf("the string %q", n.Value)
	case what == "a string":
		got = fmt.Sprintf("%s; put it in quotes", n.Value)
	default:
		got = n.Value
	}
	d.problem(key, "want %s, got %s", what, got)
}

func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			maps.Copy(fields, fieldsOf(v.Field(i)))
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			fields[name] = v.Field(i)
		}
	}
	return fields
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && slices.Contains([]string{"", "~", "null", "Null", "NULL"}, n.Value)
}

// placeOf is the place of n, of key.
func (d *decoder) placeOf(n *yaml.Node, key string) Problem {
	return Problem{File: d.file, Line: n.Line, Column: n.Column, Key: key}
}

// variable is $$, which stands for a dollar sign, ${NAME}, or what begins like that and is neither.
var variable = regexp.MustCompile(`\$\$|\$\{[^}]*\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand puts the values of environment variables in the place of ${NAME} in a value of the file, once; $$ is a dollar sign. What a
// variable has is never read as YAML.
func (d *decoder) expand(n *yaml.Node, key string) {
	if n.Kind != yaml.ScalarNode || d.expanded[n] || !strings.Contains(n.Value, "$") {
		return
	}
	d.expanded[n] = true
	n.Value = variable.ReplaceAllStringFunc(n.Value, func(found string) string {
		if found == "$$" {
			return "$"
		}
		name, closed := strings.CutSuffix(strings.TrimPrefix(found, "${"), "}")
		value, set := os.LookupEnv(name)
		switch {
		case !closed || !variableName.MatchString(name):
			d.problemAt(d.placeOf(n, key), "want ${NAME} with letters, digits and _, or $$ for a dollar sign, got %s", found)
		case !set:
			d.problemAt(d.placeOf(n, key), "the environment variable %s is not set", name)
		}
		d.veil.CoverVariable(found, value)
		return value
	})
	d.veil.Cover(n.Value)
}

// Error is everything that is wrong with a configuration, in the order of the file.
type Error struct {
	Problems []Problem
	Cause    error // of the one that is there, or nil
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

// Problem is one thing that is wrong.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // 0 if there is no place to name
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"` // such as configSources[0].address
	Message string `json:"message"`
}

// String returns "file:line:column: key: message".
func (p Problem) String() string { return p.Place() + ": " + p.Text() }

// Place returns "file:line:column", or the file alone if there is no place to name.
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
