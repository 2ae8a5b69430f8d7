package transform

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tributary/resource"
)

// Settings are the transforms of one source. They take effect in the order of the fields; Include and Exclude select by
// the source's names.
//
// The comments above fields are their descriptions in docs/config.schema.json and docs/configuration.md.
type Settings struct {
	// Take only the objects that one of these selects. Default: all.
	Include []Selector `json:"include,omitempty"`
	// Leave out the objects that one of these selects.
	Exclude []Selector `json:"exclude,omitempty"`
	// New names of namespaces, also in references. The key * stands for all others.
	Namespaces map[string]string `json:"namespaces,omitempty"`
	// New names of hosts, also in references. The first match is used.
	Hosts []Host `json:"hosts,omitempty"`
	// Labels to drop and to add.
	Labels Change `json:"labels,omitzero"`
	// Annotations to drop and to add.
	Annotations Change `json:"annotations,omitzero"`
}

// Selector selects the objects that meet all its conditions. In patterns a * stands for any characters, or none.
type Selector struct {
	// The object is of one of these kinds.
	Kinds []string `json:"kinds,omitempty"`
	// Its namespace matches one of these patterns; * is any characters.
	Namespaces []string `json:"namespaces,omitempty"`
	// Its name matches one of these patterns.
	Names []string `json:"names,omitempty"`
	// It has all of these labels; the value * stands for any.
	Labels map[string]string `json:"labels,omitempty"`
	// One of its hosts matches one of these patterns: a host of a ServiceEntry, VirtualService or Gateway, or the host of
	// a DestinationRule.
	Hosts []string `json:"hosts,omitempty"`
}

// Host renames the hosts that match a pattern.
type Host struct {
	// Pattern of the hosts, such as *.service.consul; * is any characters.
	Match string `json:"match"`
	// Their new name, such as {1}.mesh.internal. {1} stands for the text of the first * of the pattern, and so on.
	To string `json:"to"`
}

// Change drops and adds entries of a map. An added entry replaces one with the same key.
type Change struct {
	// Patterns of keys to drop; * is any characters.
	Drop []string `json:"drop,omitempty"`
	// Keys and values to add.
	Add map[string]string `json:"add,omitempty"`
}

// Rules are checked settings. They are safe for concurrent use; nil Rules change no object.
type Rules struct {
	identity         string
	include, exclude []selector
	namespaces       map[string]string
	otherNamespaces  string // new name of the others; empty if they stay
	hosts            []host
	labels           change
	annotations      change
}

// Identity is equal for rules with the same effect.
func (r *Rules) Identity() string {
	if r == nil {
		return ""
	}
	return r.identity
}

// Empty reports whether the rules change no object.
func (r *Rules) Empty() bool { return r == nil || r.identity == "{}" }

// Mistake is an error in settings: they are contradictory, or produce only invalid objects.
type Mistake struct {
	Key string // such as labels.add.a
	Err error
}

// Error implements error.
func (m *Mistake) Error() string { return m.Key + ": " + m.Err.Error() }

// Unwrap returns the error of the value.
func (m *Mistake) Unwrap() error { return m.Err }

func mistake(key, format string, args ...any) error {
	return &Mistake{key, fmt.Errorf(format, args...)}
}

// New checks settings. Its errors are of type *Mistake.
func New(settings Settings) (*Rules, error) {
	identity, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	rules := &Rules{
		identity: string(identity), namespaces: maps.Clone(settings.Namespaces), otherNamespaces: settings.Namespaces["*"],
	}
	if rules.include, err = compileSelectors("include", settings.Include); err != nil {
		return nil, err
	}
	if rules.exclude, err = compileSelectors("exclude", settings.Exclude); err != nil {
		return nil, err
	}
	for _, from := range slices.Sorted(maps.Keys(settings.Namespaces)) {
		if err := resource.CheckNamespace(settings.Namespaces[from]); err != nil {
			return nil, mistake("namespaces."+from, "%w", err)
		}
		if from == "" || from != "*" && strings.Contains(from, "*") {
			return nil, mistake("namespaces."+from, "want the name of a namespace, or *")
		}
	}
	for i, h := range settings.Hosts {
		compiled, err := compileHost(fmt.Sprintf("hosts[%d]", i), h)
		if err != nil {
			return nil, err
		}
		rules.hosts = append(rules.hosts, compiled)
	}
	rules.labels, err = compileChange("labels", settings.Labels, resource.CheckLabelKey, resource.CheckLabelValue)
	if err != nil {
		return nil, err
	}
	rules.annotations, err = compileChange("annotations", settings.Annotations, resource.CheckAnnotationKey,
		checkAnnotation)
	return rules, err
}

// selector is a Selector with compiled patterns.
type selector struct {
	kinds                    []resource.Kind
	namespaces, names, hosts []pattern
	labels                   map[string]string
}

func compileSelectors(key string, selectors []Selector) ([]selector, error) {
	var compiled []selector
	for i, settings := range selectors {
		var next selector
		for _, name := range settings.Kinds {
			schema, ok := resource.SchemaByName(name)
			if !ok {
				return nil, mistake(fmt.Sprintf("%s[%d].kinds", key, i), "unknown kind %q", name)
			}
			next.kinds = append(next.kinds, schema.Kind)
		}
		if len(settings.Kinds)+len(settings.Namespaces)+len(settings.Names)+len(settings.Labels)+len(settings.Hosts) == 0 {
			return nil, mistake(fmt.Sprintf("%s[%d]", key, i),
				"selects everything; name kinds, namespaces, names, labels or hosts")
		}
		next.namespaces, next.names, next.labels = patterns(settings.Namespaces), patterns(settings.Names), settings.Labels
		for _, h := range settings.Hosts {
			next.hosts = append(next.hosts, patternOf(strings.ToLower(h)))
		}
		compiled = append(compiled, next)
	}
	return compiled, nil
}

// host is a Host with a compiled pattern.
type host struct {
	match pattern
	to    string
	rule  string
}

func compileHost(key string, settings Host) (host, error) {
	if settings.Match == "" {
		return host{}, mistake(key+".match", "missing")
	}
	if settings.To == "" {
		return host{}, mistake(key+".to", "missing")
	}
	compiled := host{
		match: patternOf(strings.ToLower(settings.Match)), to: settings.To,
		rule: "hosts: " + settings.Match + " → " + settings.To,
	}
	if filled := compiled.fill(make([]string, compiled.match.stars())); strings.Contains(filled, "{") {
		usable := "no {}, since " + settings.Match + " has no *"
		switch stars := compiled.match.stars(); {
		case stars == 1:
			usable = "only {1}, for the * of " + settings.Match
		case stars > 1:
			usable = fmt.Sprintf("only {1} to {%d}, for the * of %s", stars, settings.Match)
		}
		return host{}, mistake(key+".to", "want %s, got %q", usable, settings.To)
	}
	if example, _ := compiled.rename(strings.ReplaceAll(settings.Match, "*", "x")); example != "*" {
		if err := resource.CheckHost(example); err != nil {
			return host{}, mistake(key+".to", "%q makes no host: %w", settings.To, err)
		}
	}
	return compiled, nil
}

// rename returns the new name of a host that matches.
func (h host) rename(name string) (string, bool) {
	captured, ok := h.match.match(strings.ToLower(name))
	if !ok {
		return "", false
	}
	return h.fill(captured), true
}

// fill returns the new name for the texts of the stars of the pattern.
func (h host) fill(captured []string) string {
	var pairs []string
	for n, text := range captured {
		pairs = append(pairs, "{"+strconv.Itoa(n+1)+"}", text)
	}
	return strings.NewReplacer(pairs...).Replace(h.to)
}

// change is a Change with compiled patterns.
type change struct {
	drop []pattern
	add  map[string]string
}

// compileChange checks a change with the checks of keys and of values.
func compileChange(key string, settings Change, checkKey, checkValue func(string) error) (change, error) {
	for _, k := range slices.Sorted(maps.Keys(settings.Add)) {
		if err := cmp.Or(checkKey(k), checkValue(settings.Add[k])); err != nil {
			return change{}, mistake(key+".add."+k, "%w", err)
		}
	}
	if slices.Contains(settings.Drop, "") {
		return change{}, mistake(key+".drop", "a pattern is empty")
	}
	return change{patterns(settings.Drop), settings.Add}, nil
}

func checkAnnotation(value string) error {
	if len(value) > resource.MaxAnnotations {
		return fmt.Errorf("longer than the %d bytes that an object's annotations may have together", resource.MaxAnnotations)
	}
	return nil
}

// apply returns the changed entries and the rules that changed them. It does not modify values.
func (c change) apply(field string, values map[string]string) (map[string]string, []string) {
	var rules []string
	for _, pattern := range c.drop {
		for key := range values {
			if !pattern.matches(key) {
				continue
			}
			if len(rules) == 0 {
				values = maps.Clone(values)
			}
			delete(values, key)
			rules = add(rules, field+": drop "+pattern.text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.add)) {
		if value, exists := values[key]; exists && value == c.add[key] {
			continue
		}
		if len(rules) == 0 {
			values = maps.Clone(values)
		}
		if values == nil {
			values = make(map[string]string)
		}
		values[key] = c.add[key]
		rules = add(rules, field+": add "+key)
	}
	return values, rules
}

// add adds a rule, once.
func add(rules []string, rule string) []string {
	if slices.Contains(rules, rule) {
		return rules
	}
	return append(rules, rule)
}

// namespace returns the new name of a namespace.
func (r *Rules) namespace(name string) string {
	if to, ok := r.namespaces[name]; ok && name != "*" {
		return to
	}
	return cmp.Or(r.otherNamespaces, name)
}
