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

// Source is one source: what may be said of each, and beside it, in the same mapping, the settings of the scheme of its
// address. The address, tlsSettings and subscribedResources are those of Istio's meshConfig.configSources.
type Source struct {
	// Name of the source in status, metrics and messages. Unique; by default made of the address.
	Name string `json:"name,omitempty"`
	// Where to read from.
	Address string `json:"address"`
	// Who wins a key that several sources have: the highest number, and where it is equal the first in the list. Default: 0.
	Precedence int `json:"precedence,omitempty"`
	// Whether nothing is served at a start until this source was read. With false the others are served without it, and clients that connect
	// meanwhile lack what only it has. Default: true.
	Required *bool `json:"required,omitempty"`
	// Which losses are held until somebody releases them; off for none.
	Guard Guard `json:"guard,omitzero"`
	// What is made one with what other sources have, instead of one shadowing the other: endpoints, or a mapping with details.
	Merge Merge `json:"merge,omitzero"`
	// What to do with an object that breaks a rule of Istio's validation: enforce quarantines it, warn serves it with a warning, for rules
	// that are newer. Default: enforce.
	Validation string `json:"validation,omitempty"`
	// What to make of the objects of the source before they are checked and served.
	Transform *transform.Settings `json:"transform,omitempty"`

	Settings Settings `json:"-"` // those of the scheme; Load, Parse and New see to it that there are some
}

// The values of Source.Validation.
const (
	ValidationEnforce = "enforce"
	ValidationWarn    = "warn"
)

// Settings are those of the sources of one scheme: a *File, *XDS, *Consul, *ConsulKV, *Dubbo, *DubboConsul, *Nacos, *Eureka
// or *Kube.
type Settings interface {
	// locate makes the names of files in the settings relative to dir, and returns address made so.
	locate(dir, address string) string
	// where returns where the source at address reads, and those of the settings by which what it had is of no use to it.
	where(address string) where
	// reading returns those of the settings that say what is read there and made of it, with defaults filled in.
	reading() any
	// open makes the source at address. The error begins with the key at fault.
	open(address string, p Parts) (sources.Source, error)
}

// Parts are what a program gives the sources that it runs. Hops and VIPs may be nil.
type Parts struct {
	Metrics prometheus.Registerer
	Hops    xds.Hops // knows through which instances of tributary what is read comes
	VIPs    interface {
		Address(host string) (netip.Addr, error)
	}
}

// New makes the source.
func (s *Source) New(p Parts) (sources.Source, error) { return s.Settings.open(s.Address, p) }

// PartialStart reports whether the source counts as read though not one object of what it found is valid. Where people write objects that
// is a mistake somewhere, unless the settings say otherwise; where services register, each is refused for reasons of its own.
func (s *Source) PartialStart() bool {
	of, written := s.Settings.(interface{ startsInPart() bool })
	return !written || of.startsInPart()
}

// schemeOf returns the scheme of an address, by the name that it has there. What a parameter kind says is of no interest where the name has
// no kinds.
func schemeOf(address string) (s Scheme, name string, known bool) {
	name, rest, _ := strings.Cut(address, "://")
	kind := kindIn(rest)
	for _, s := range Schemes() {
		if slices.Contains(s.Names, name) && (kind == "" || s.Kind == kind || len(kindsOf(name)) == 0) {
			return s, name, true
		}
	}
	return Scheme{}, name, false
}

// oneKind returns an error if the parameter kind of an address can mean several things, or nothing.
func oneKind(name, rest string) error {
	if len(kindsOf(name)) == 0 {
		return nil
	}
	_, query, _ := strings.Cut(rest, "?")
	values, _ := url.ParseQuery(query) // what is wrong with the others is said where they are read
	want := strings.Join(kindsOf(name), " or ")
	for parameter, given := range values {
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

func kindIn(address string) string {
	_, query, _ := strings.Cut(address, "?")
	values, _ := url.ParseQuery(query) // what is wrong with the others is said where they are read
	return values.Get("kind")
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

// source reads a source. Which keys it may have is said by the scheme of its address, wherever that stands.
func (d *decoder) source(n *yaml.Node, s *Source, key string) {
	if n.Kind != yaml.MappingNode {
		d.want(n, key, "a mapping of keys to values")
		return
	}
	fields := fieldsOf(reflect.ValueOf(s).Elem())
	scheme, name, known := schemeOf(d.addressIn(n, key))
	if known {
		s.Settings = scheme.Settings()
		maps.Copy(fields, fieldsOf(reflect.ValueOf(s.Settings).Elem()))
		d.fields(n, fields, key, func(unknown string) string { return unknownTo(name, unknown, fields) })
		return
	}
	// Whether the other keys are right nobody can say; their values are looked at all the same.
	common := sortedKeys(fields)
	for _, scheme := range Schemes() {
		maps.Copy(fields, fieldsOf(reflect.ValueOf(scheme.Settings()).Elem()))
	}
	d.fields(n, fields, key, func(unknown string) string {
		return "unknown key" + words.Suggestion(unknown, sortedKeys(fields)) + "; known here: " + strings.Join(common, ", ") +
			", and those of the scheme of the address"
	})
}

// addressIn returns the address in a source's mapping, if there is one.
func (d *decoder) addressIn(n *yaml.Node, key string) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		value := n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if n.Content[i].Value == "address" && value.Kind == yaml.ScalarNode {
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

// unknownTo says what to make of a key that is none of the fields of a source with an address of scheme.
func unknownTo(scheme, key string, fields map[string]reflect.Value) string {
	if advice := removedKeys[key]; advice != "" {
		return advice
	}
	known := sortedKeys(fields)
	var others []string
	for _, s := range Schemes() {
		if _, ok := fieldsOf(reflect.ValueOf(s.Settings()).Elem())[key]; ok {
			others = append(others, s.label())
		}
	}
	if len(others) > 0 {
		return fmt.Sprintf("not for %s addresses, but for %s; known here: %s", scheme, strings.Join(others, " and "), strings.Join(known, ", "))
	}
	return fmt.Sprintf("unknown key of %s addresses%s; known here: %s", scheme, words.Suggestion(key, known), strings.Join(known, ", "))
}

// sourceName is what a source may be called: names stand in metrics, in paths of the state directory and in messages.
var sourceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func (d *decoder) checkSource(s *Source, key, dir string) {
	if s.Name != "" && !sourceName.MatchString(s.Name) {
		d.problem(key+".name", "want letters, digits and `.` `_` `-` within, got %q", s.Name)
	}
	if s.Validation != "" && s.Validation != ValidationEnforce && s.Validation != ValidationWarn {
		d.problem(key+".validation", "want %s or %s, got %q", ValidationEnforce, ValidationWarn, s.Validation)
	}
	name, rest, ok := strings.Cut(s.Address, "://")
	scheme, _, known := schemeOf(s.Address)
	switch {
	case s.Address == "":
		d.problem(key+".address", "missing, such as fs:///etc/tributary/rules")
		return
	case !ok:
		d.problem(key+".address", "want SCHEME://…, got %q; a directory is written fs:///dir", s.Shown())
		return
	case !known && len(kindsOf(name)) > 0:
		d.problem(key+".address", "want a parameter kind of %s, such as %s://host?kind=%s, got %q", strings.Join(kindsOf(name), " or "), name,
			kindsOf(name)[0], kindIn(rest))
		return
	case !known:
		d.problem(key+".address", "unknown scheme %q%s; known: %s", name, words.Suggestion(name, schemeNames()),
			strings.Join(schemeNames(), ", "))
		return
	case rest == "" && name != kube.Scheme:
		d.problem(key+".address", "nothing after %q", s.Address)
		return
	}
	if err := oneKind(name, rest); err != nil {
		d.problem(key+".address", "%v", err)
		return
	}
	if s.Settings == nil {
		s.Settings = scheme.Settings()
	}
	s.Address = s.Settings.locate(dir, s.Address)
	d.checkParameters(s.Address, key+".address")
	if _, err := s.New(Parts{}); err != nil {
		at, message, _ := strings.Cut(err.Error(), ": ")
		d.problem(key+"."+at, "%s", message)
		return
	}
	if s.Name == "" {
		s.Name = nameOf(s.Address)
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

// under makes an address that is relative, such as fs://./rules, one that is relative to dir.
func under(dir, address string) string {
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

// Shown is the address for people: without a user and password, which those of some schemes have.
func (s *Source) Shown() string { return addresses.Shown(s.Address) }

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameOf makes a source name of an address: its last element, without what a name may not have, or else the first name of
// its scheme.
func nameOf(address string) string {
	_, rest, _ := strings.Cut(addresses.Shown(address), "://")
	rest, _, _ = strings.Cut(rest, "?")
	if plain, err := url.PathUnescape(rest); err == nil {
		rest = plain
	}
	if name := strings.Trim(notInName.ReplaceAllString(path.Base(rest), "-"), "._-"); name != "" {
		return name
	}
	scheme, name, known := schemeOf(address)
	if known {
		return scheme.Names[0]
	}
	return name
}

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
	p := s.Settings.where(addresses.Shown(s.Address))
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

// reading returns settings, with defaults, without what has no bearing on what is read and published. The tag reading of a field is - if
// it has none, and set if the order of its elements has none.
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

// assign sets the fields of the struct that to points to from the fields with the same names of another struct, as far
// as their types allow. A Duration becomes a time.Duration. Fields of Mapping are in the other struct itself.
func assign(to, from any) {
	if from != nil {
		assignFields(reflect.ValueOf(to).Elem(), reflect.ValueOf(from))
	}
}

func assignFields(to, from reflect.Value) {
	for i := range to.NumField() {
		field := to.Type().Field(i)
		if field.Anonymous || field.Name == "Mapping" {
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
