package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	addresses "tributary/internal/address"
	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/kube"
	"tributary/sources/transform"
	"tributary/sources/xds"
)

// Source has the settings of a source: those that each source has, and in the same mapping those of its scheme.
// address, tlsSettings and subscribedResources are those of Istio's meshConfig.configSources.
type Source struct {
	// Name of the source in status, metrics and messages. It identifies the source over reloads and restarts. Unique; by
	// default made of the address.
	Name string `json:"name,omitempty"`
	// Where to read from.
	Address string `json:"address"`
	// Rank of the source for keys that several sources have: the highest number wins, then the first in the list. Default:
	// 0.
	Precedence int `json:"precedence,omitempty"`
	// Whether a start waits for the first read of this source. With false the others are served without it, and clients
	// that connect meanwhile lack its objects. Default: true.
	Required *bool `json:"required,omitempty"`
	// Losses that are held until a release; off for none.
	Guard Guard `json:"guard,omitzero"`
	// Parts that are merged with those of other sources, instead of one shadowing the other: endpoints, or a mapping with
	// details.
	Merge Merge `json:"merge,omitzero"`
	// Objects that break a rule of Istio's validation: enforce quarantines them, warn serves them with a warning, for
	// rules that are newer. Default: enforce.
	Validation string `json:"validation,omitempty"`
	// Changes of the source's objects before validation.
	Transform *transform.Settings `json:"transform,omitempty"`

	Settings Settings `json:"-"` // those of the scheme; Load, Parse and New set them
}

// The values of Source.Validation.
const (
	ValidationEnforce = "enforce"
	ValidationWarn    = "warn"
)

// Settings are the settings of a scheme: a *File, *XDS, *Consul, *ConsulKV, *Dubbo, *DubboConsul, *Nacos, *Eureka or
// *Kube.
type Settings interface {
	// locate resolves relative names of files in dir, and returns address resolved in dir.
	locate(dir, address string) string
	// canonical returns the address in a form that equal addresses share.
	canonical(address string) string
	// reading returns the settings that change the published objects, with defaults filled in.
	reading() any
	// open makes the source at address. The error begins with the key at fault.
	open(address string, p Parts) (sources.Source, error)
}

// Parts are dependencies that the program shares with its sources. Hops and VIPs may be nil.
type Parts struct {
	Metrics prometheus.Registerer
	Hops    xds.Hops // records the instances of tributary on the way of the resources
	VIPs    interface {
		Address(host string) (netip.Addr, error)
	}
}

// New makes the source.
func (s *Source) New(p Parts) (sources.Source, error) { return s.Settings.open(s.Address, p) }

// PartialStart reports whether the source counts as read without a valid object. Where users write objects, that is
// probably a common mistake in all of them, unless the settings allow it; in a registry, each service is refused for
// reasons of its own.
func (s *Source) PartialStart() bool {
	settings, written := s.Settings.(interface{ startsInPart() bool })
	return !written || settings.startsInPart()
}

// schemeOf returns the scheme of an address and the name that the address gives it. A parameter kind counts only for
// names with kinds.
func schemeOf(address string) (s Scheme, name string, exists bool) {
	name, rest, _ := strings.Cut(address, "://")
	kind := parametersIn(rest).Get("kind")
	for _, s := range Schemes() {
		if slices.Contains(s.Names, name) && (kind == "" || s.Kind == kind || len(kindsOf(name)) == 0) {
			return s, name, true
		}
	}
	return Scheme{}, name, false
}

// checkKind returns an error if the parameter kind of an address is ambiguous or empty.
func checkKind(name, rest string) error {
	if len(kindsOf(name)) == 0 {
		return nil
	}
	want := strings.Join(kindsOf(name), " or ")
	for parameter, given := range parametersIn(rest) {
		switch {
		case !strings.EqualFold(parameter, "kind"):
		case parameter != "kind":
			return fmt.Errorf("the parameter %s is written kind", parameter)
		case len(given) > 1:
			return fmt.Errorf("the parameter kind is given %d times; want one, %s", len(given), want)
		case given[0] == "":
			return fmt.Errorf("the parameter kind is empty; want %s", want)
		}
	}
	return nil
}

// parametersIn returns the parameters of an address. The source reports malformed ones.
func parametersIn(address string) url.Values {
	_, query, _ := strings.Cut(address, "?")
	values, _ := url.ParseQuery(query)
	return values
}

// kindsOf returns the kinds that the addresses of a name may have.
func kindsOf(name string) (kinds []string) {
	for _, s := range Schemes() {
		if slices.Contains(s.Names, name) && s.Kind != "" {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}

// source reads a source. The scheme of its address decides on the valid keys, wherever the address stands in the
// mapping.
func (d *decoder) source(node *yaml.Node, source *Source, key string) {
	if node.Kind != yaml.MappingNode {
		d.wantType(node, key, "a mapping of keys to values")
		return
	}
	fields := fieldsOf(reflect.ValueOf(source).Elem())
	scheme, name, isScheme := schemeOf(d.addressIn(node, key))
	if isScheme {
		source.Settings = scheme.Settings()
		maps.Copy(fields, fieldsOf(reflect.ValueOf(source.Settings).Elem()))
		d.fields(node, fields, key, func(unknown string) string { return unknownKey(name, unknown, fields) })
		return
	}
	// Without a scheme, accept the keys of all schemes, so that their values are checked.
	common := sortedKeys(fields)
	for _, scheme := range Schemes() {
		maps.Copy(fields, fieldsOf(reflect.ValueOf(scheme.Settings()).Elem()))
	}
	d.fields(node, fields, key, func(unknown string) string {
		return "unknown key" + words.Suggestion(unknown, sortedKeys(fields)) + "; known here: " + strings.Join(common, ", ") +
			", and those of the scheme of the address"
	})
}

// addressIn returns the address in a source's mapping, if there is one.
func (d *decoder) addressIn(node *yaml.Node, key string) string {
	for i := 0; i+1 < len(node.Content); i += 2 {
		value := node.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if node.Content[i].Value == "address" && value.Kind == yaml.ScalarNode {
			d.expand(value, key+".address")
			return value.Value
		}
	}
	return ""
}

// removedKeys are keys of sources that an earlier version had, with advice for users.
var removedKeys = map[string]string{
	"cacheDir": "removed: set stateDir, the directory of the last good state: a restart resumes from it",
}

// unknownKey returns the message for a key that sources of a scheme do not have.
func unknownKey(scheme, key string, fields map[string]reflect.Value) string {
	if advice := removedKeys[key]; advice != "" {
		return advice
	}
	names := sortedKeys(fields)
	var schemes []string
	for _, s := range Schemes() {
		if _, ok := fieldsOf(reflect.ValueOf(s.Settings()).Elem())[key]; ok {
			schemes = append(schemes, s.label())
		}
	}
	if len(schemes) > 0 {
		return fmt.Sprintf("not for %s addresses, but for %s; known here: %s", scheme, strings.Join(schemes, " and "),
			strings.Join(names, ", "))
	}
	suggestion := words.Suggestion(key, names)
	for _, name := range names {
		group := fields[name].Type()
		if group.Kind() != reflect.Pointer || group.Elem().Kind() != reflect.Struct {
			continue
		}
		if _, ok := fieldsOf(reflect.New(group.Elem()).Elem())[key]; ok {
			suggestion = fmt.Sprintf(" (did you mean %s.%s?)", name, key)
		}
	}
	return fmt.Sprintf("unknown key of %s addresses%s; known here: %s", scheme, suggestion, strings.Join(names, ", "))
}

// sourceName matches valid names of sources: metrics, paths of the state directory and messages have them.
var sourceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

const maxSourceName = 200

func (d *decoder) checkSource(source *Source, key, dir string) {
	if source.Name != "" && !sourceName.MatchString(source.Name) {
		d.problem(key+".name", "want letters, digits and `.` `_` `-` within, got %q", source.Name)
	}
	d.checkOneOf(key+".validation", source.Validation, ValidationEnforce, ValidationWarn)
	name, rest, ok := strings.Cut(source.Address, "://")
	scheme, _, exists := schemeOf(source.Address)
	switch {
	case source.Address == "":
		d.problem(key+".address", "missing, such as fs:///etc/tributary/rules")
		return
	case !ok:
		d.problem(key+".address", "want SCHEME://…, got %q; a directory is written fs:///dir", source.Shown())
		return
	case !exists && len(kindsOf(name)) > 0:
		d.problem(key+".address", "want a parameter kind of %s, such as %s://host?kind=%s, got %q",
			strings.Join(kindsOf(name), " or "), name,
			kindsOf(name)[0], parametersIn(rest).Get("kind"))
		return
	case !exists:
		d.problem(key+".address", "unknown scheme %q%s; known: %s", name, words.Suggestion(name, schemeNames()),
			strings.Join(schemeNames(), ", "))
		return
	case rest == "" && name != kube.Scheme:
		d.problem(key+".address", "nothing after %q", source.Address)
		return
	}
	if err := checkKind(name, rest); err != nil {
		d.problem(key+".address", "%v", err)
		return
	}
	if source.Settings == nil {
		source.Settings = scheme.Settings()
	}
	source.Address = source.Settings.locate(dir, source.Address)
	d.checkParameters(source.Address, key+".address")
	if _, err := source.New(Parts{}); err != nil {
		setting, message, _ := strings.Cut(err.Error(), ": ")
		d.problem(key+"."+setting, "%s", message)
		return
	}
	if source.Name == "" {
		source.Name = nameOf(source.Address)
	}
	if len(source.Name) > maxSourceName {
		d.problem(key+".name", "want at most %d characters, got %d; its file in the state directory has this name",
			maxSourceName, len(source.Name))
	}
}

func schemeNames() (names []string) {
	for _, s := range Schemes() {
		for _, name := range s.Names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// absoluteAddress resolves a relative address, such as fs://./rules, in dir.
func absoluteAddress(dir, address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	if first, _, _ := strings.Cut(rest, "/"); first != "." && first != ".." {
		return address
	}
	escaped := (&url.URL{Path: filepath.ToSlash(dir)}).EscapedPath()
	joined := path.Join(escaped, rest)
	if !path.IsAbs(joined) && !strings.HasPrefix(joined, "../") {
		joined = "./" + joined
	}
	return scheme + "://" + joined
}

// Shown returns the address without user and password, for messages.
func (s *Source) Shown() string { return addresses.Shown(s.Address) }

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameOf makes a source name of an address: its last element without characters that names must not have, or else the
// first name of its scheme.
func nameOf(address string) string {
	_, rest, _ := strings.Cut(addresses.Shown(address), "://")
	rest, _, _ = strings.Cut(rest, "?")
	if plain, err := url.PathUnescape(rest); err == nil {
		rest = plain
	}
	if name := strings.Trim(notInName.ReplaceAllString(path.Base(rest), "-"), "._-"); name != "" {
		return name
	}
	scheme, name, exists := schemeOf(address)
	if exists {
		return scheme.Names[0]
	}
	return name
}

// Reading identifies the settings that decide which objects are published: address, transforms, validation and options,
// but neither name nor intervals. Paths are absolute, and a default counts the same whether it is written or not.
func (s *Source) Reading() string {
	content := struct {
		Address   string
		Transform *transform.Settings
		Lenient   bool
		Texts     any
	}{
		s.Settings.canonical(addresses.Shown(s.Address)), s.Transform, s.Validation == ValidationWarn,
		s.Settings.reading(),
	}
	if rules, err := s.Rules(); err == nil && rules.Empty() {
		content.Transform = nil
	}
	text, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("config: %v", err)) // a mistake in the structs, found by any test
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// reading returns settings with defaults, without the fields that do not change the published objects: those with the
// tag reading:"-". The order of elements does not count in a field with the tag reading:"set".
func reading[S any](values S, defaults any) S {
	assign(&values, defaults)
	normalize(reflect.ValueOf(&values).Elem())
	return values
}

func normalize(value reflect.Value) {
	for i := range value.NumField() {
		field := value.Field(i)
		switch tag := value.Type().Field(i).Tag.Get("reading"); {
		case value.Type().Field(i).Anonymous:
			normalize(field)
		case tag == "-":
			field.SetZero()
		case tag == "set":
			names, _ := reflect.TypeAssert[[]string](field)
			field.Set(reflect.ValueOf(sorted(names)))
		}
	}
}

// assign sets the fields of the struct that to points to from the fields with the same names of another struct, as far
// as their types allow. A Duration becomes a time.Duration. Fields of Mapping are in the other struct itself.
func assign(to, from any) {
	if from != nil {
		assignFields(reflect.ValueOf(to).Elem(), reflect.ValueOf(from))
	}
}

func assignFields(target, from reflect.Value) {
	for i := range target.NumField() {
		field := target.Type().Field(i)
		if field.Anonymous || field.Name == "Mapping" {
			assignFields(target.Field(i), from)
		} else if value := from.FieldByName(field.Name); field.IsExported() && value.IsValid() &&
			value.CanConvert(field.Type) {
			target.Field(i).Set(value.Convert(field.Type))
		}
	}
}

// sorted returns names in order, without duplicates.
func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
