// Package transform changes what a source says before it is validated and stored, by declarative rules: which of it is
// taken, and into which namespaces, hosts, labels and annotations. It is pure: the same resource becomes the same.
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

// Settings are the transforms of one source. They take effect in the order of the fields; Include and Exclude see what the
// source says, with its own names.
//
// The comments above fields are their descriptions in docs/config.schema.json and docs/configuration.md.
type Settings struct {
	// Take only the objects that one of these selects. Default: all.
	Include []Selector `json:"include,omitempty"`
	// Of those, leave out the objects that one of these selects.
	Exclude []Selector `json:"exclude,omitempty"`
	// Namespaces and what they become, also where objects refer to them. The key * is any other one.
	Namespaces map[string]string `json:"namespaces,omitempty"`
	// Hosts and what they become, also where objects refer to them. The first that matches is used.
	Hosts []Host `json:"hosts,omitempty"`
	// Labels to drop and to add.
	Labels Change `json:"labels,omitzero"`
	// Annotations to drop and to add.
	Annotations Change `json:"annotations,omitzero"`
}

// Selector selects the objects that meet all that it says. In patterns a * stands for any characters, or none.
type Selector struct {
	// The object is of one of these kinds.
	Kinds []string `json:"kinds,omitempty"`
	// Its namespace matches one of these patterns, in which * is any characters.
	Namespaces []string `json:"namespaces,omitempty"`
	// Its name matches one of these patterns.
	Names []string `json:"names,omitempty"`
	// It has all of these labels; the value * is any.
	Labels map[string]string `json:"labels,omitempty"`
	// It is for a host that matches one of these patterns: one of the hosts of a ServiceEntry, VirtualService or Gateway, or the host of a
	// DestinationRule.
	Hosts []string `json:"hosts,omitempty"`
}

// Host renames the hosts that match a pattern.
type Host struct {
	// Pattern of the hosts, in which * is any characters, such as *.service.consul.
	Match string `json:"match"`
	// What they become, in which {1} is what the first * of the pattern stands for, and so on, such as {1}.mesh.internal.
	To string `json:"to"`
}

// Change says what to drop and to add. What is added replaces what has its key.
type Change struct {
	// Patterns of keys to drop, in which * is any characters.
	Drop []string `json:"drop,omitempty"`
	// Keys and values to add.
	Add map[string]string `json:"add,omitempty"`
}

// Rules are settings that were found right. They are safe for concurrent use; nil changes nothing.
type Rules struct {
	identity         string
	include, exclude []selector
	namespaces       map[string]string
	otherNamespaces  string // what becomes of those that namespaces does not have; empty if they stay
	hosts            []host
	labels           change
	annotations      change
}

// Identity tells rules apart: those of which it is the same do the same.
func (r *Rules) Identity() string {
	if r == nil {
		return ""
	}
	return r.identity
}

// Empty reports whether the rules change nothing, whatever they are applied to.
func (r *Rules) Empty() bool { return r == nil || r.identity == "{}" }

// Mistake is what is wrong with settings: what they say cannot be done, or no object could come of it that is valid.
type Mistake struct {
	Key string // such as labels.add.a
	Err error
}

// Error implements error.
func (m *Mistake) Error() string { return m.Key + ": " + m.Err.Error() }

// Unwrap returns what is wrong with the value of the key.
func (m *Mistake) Unwrap() error { return m.Err }

func mistake(key, format string, args ...any) error {
	return &Mistake{key, fmt.Errorf(format, args...)}
}

// New checks s. What is wrong with it is a *Mistake.
func New(s Settings) (*Rules, error) {
	identity, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	r := &Rules{identity: string(identity), namespaces: maps.Clone(s.Namespaces), otherNamespaces: s.Namespaces["*"]}
	if r.include, err = compileSelectors("include", s.Include); err != nil {
		return nil, err
	}
	if r.exclude, err = compileSelectors("exclude", s.Exclude); err != nil {
		return nil, err
	}
	for _, from := range slices.Sorted(maps.Keys(s.Namespaces)) {
		if err := resource.CheckNamespace(s.Namespaces[from]); err != nil {
			return nil, mistake("namespaces."+from, "%w", err)
		}
		if from == "" || from != "*" && strings.Contains(from, "*") {
			return nil, mistake("namespaces."+from, "want the name of a namespace, or *")
		}
	}
	for i, h := range s.Hosts {
		compiled, err := compileHost(fmt.Sprintf("hosts[%d]", i), h)
		if err != nil {
			return nil, err
		}
		r.hosts = append(r.hosts, compiled)
	}
	r.labels, err = compileChange("labels", s.Labels, resource.CheckLabelKey, resource.CheckLabelValue)
	if err != nil {
		return nil, err
	}
	r.annotations, err = compileChange("annotations", s.Annotations, resource.CheckAnnotationKey, checkAnnotation)
	return r, err
}

// selector is a Selector with its patterns made ready.
type selector struct {
	kinds                    []resource.Kind
	namespaces, names, hosts []pattern
	labels                   map[string]string
}

func compileSelectors(key string, all []Selector) ([]selector, error) {
	var compiled []selector
	for i, s := range all {
		var c selector
		for _, k := range s.Kinds {
			schema, ok := resource.SchemaByName(k)
			if !ok {
				return nil, mistake(fmt.Sprintf("%s[%d].kinds", key, i), "unknown kind %q", k)
			}
			c.kinds = append(c.kinds, schema.Kind)
		}
		if len(s.Kinds)+len(s.Namespaces)+len(s.Names)+len(s.Labels)+len(s.Hosts) == 0 {
			return nil, mistake(fmt.Sprintf("%s[%d]", key, i), "selects everything; name kinds, namespaces, names, labels or hosts")
		}
		c.namespaces, c.names, c.labels = patterns(s.Namespaces), patterns(s.Names), s.Labels
		for _, h := range s.Hosts {
			c.hosts = append(c.hosts, patternOf(strings.ToLower(h)))
		}
		compiled = append(compiled, c)
	}
	return compiled, nil
}

// host is a Host with its pattern made ready.
type host struct {
	match pattern
	to    string
	rule  string
}

func compileHost(key string, h Host) (host, error) {
	if h.Match == "" {
		return host{}, mistake(key+".match", "missing")
	}
	if h.To == "" {
		return host{}, mistake(key+".to", "missing")
	}
	c := host{match: patternOf(strings.ToLower(h.Match)), to: h.To, rule: "hosts: " + h.Match + " → " + h.To}
	if filled := c.fill(make([]string, c.match.stars())); strings.Contains(filled, "{") {
		return host{}, mistake(key+".to", "want no more than {1} to {%d}, for the * of %s, got %q", c.match.stars(), h.Match, h.To)
	}
	if example, _ := c.rename(strings.ReplaceAll(h.Match, "*", "x")); example != "*" {
		if err := resource.CheckHost(example); err != nil {
			return host{}, mistake(key+".to", "%q makes no host: %w", h.To, err)
		}
	}
	return c, nil
}

// rename returns what becomes of a host, if it matches.
func (h host) rename(name string) (string, bool) {
	captured, ok := h.match.match(strings.ToLower(name))
	if !ok {
		return "", false
	}
	return h.fill(captured), true
}

// fill returns what the host becomes if the stars of the pattern stand for such texts.
func (h host) fill(captured []string) string {
	var pairs []string
	for n, text := range captured {
		pairs = append(pairs, "{"+strconv.Itoa(n+1)+"}", text)
	}
	return strings.NewReplacer(pairs...).Replace(h.to)
}

// change is a Change with its patterns made ready.
type change struct {
	drop []pattern
	add  map[string]string
}

// compileChange checks a change with what says what is wrong with a key or a value.
func compileChange(key string, c Change, checkKey, checkValue func(string) error) (change, error) {
	for _, k := range slices.Sorted(maps.Keys(c.Add)) {
		if err := cmp.Or(checkKey(k), checkValue(c.Add[k])); err != nil {
			return change{}, mistake(key+".add."+k, "%w", err)
		}
	}
	if slices.Contains(c.Drop, "") {
		return change{}, mistake(key+".drop", "a pattern is empty")
	}
	return change{patterns(c.Drop), c.Add}, nil
}

func checkAnnotation(value string) error {
	if len(value) > resource.MaxAnnotations {
		return fmt.Errorf("longer than the %d bytes that an object's annotations may have together", resource.MaxAnnotations)
	}
	return nil
}

// apply returns what becomes of m, which it leaves as it is, and the rules that made a difference.
func (c change) apply(what string, m map[string]string) (map[string]string, []string) {
	var rules []string
	for _, p := range c.drop {
		for k := range m {
			if !p.matches(k) {
				continue
			}
			if len(rules) == 0 {
				m = maps.Clone(m)
			}
			delete(m, k)
			rules = add(rules, what+": drop "+p.text)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.add)) {
		if old, has := m[k]; has && old == c.add[k] {
			continue
		}
		if len(rules) == 0 {
			m = maps.Clone(m)
		}
		if m == nil {
			m = make(map[string]string)
		}
		m[k] = c.add[k]
		rules = add(rules, what+": add "+k)
	}
	return m, rules
}

// add adds a rule, once.
func add(rules []string, rule string) []string {
	if slices.Contains(rules, rule) {
		return rules
	}
	return append(rules, rule)
}

// namespace returns what becomes of one.
func (r *Rules) namespace(name string) string {
	if to, ok := r.namespaces[name]; ok && name != "*" {
		return to
	}
	return cmp.Or(r.otherNamespaces, name)
}
