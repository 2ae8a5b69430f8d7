// Package derive makes Istio's Gateways, VirtualServices and DestinationRules of objects of the Kubernetes Gateway API and of Ingresses, as
// istiod 1.27.9 does (its pilot/pkg/config/kube/gateway and ingress). It is pure: what it knows is what was put into a Set.
// docs/gateway-api.md says what becomes what, and where it differs from istiod.
package derive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"tributary/resource"
	"tributary/sources"
)

// Options are the settings of a Set. The zero value is the default.
type Options struct {
	// DomainSuffix is that of the hosts of Services; "cluster.local" if empty.
	DomainSuffix string
	// GatewayClasses are the names of the classes that are served, whatever their GatewayClass says. If there are none, "istio" is, and
	// each class whose GatewayClass names istiod's controller.
	GatewayClasses []string
	// AllServices says that every Service of the cluster is put into the Set: a backend that is none of them is reported, and gateways
	// are selected by their Service. Otherwise, backends are taken as they are named, and gateways are selected by label.
	AllServices bool
	// PrefixRewrite makes redirects that replace a prefix for istiod 1.31 and later, which has a field for it.
	PrefixRewrite bool

	// Which Ingresses are taken, and which workloads serve them, as Istio's mesh configuration says it.
	IngressControllerMode string // "STRICT", if empty: only Ingresses of our class; "DEFAULT": also those without a class; or "OFF"
	IngressClass          string // the name of our class; "istio" if empty
	IngressSelector       string // the value of the label istio of the workloads; "ingressgateway" if empty
	IngressNamespace      string // that of the Gateways; "istio-system" if empty
}

// Check returns what is wrong with the options.
func (o Options) Check() error {
	if !slices.Contains([]string{"", "STRICT", "DEFAULT", "OFF"}, o.IngressControllerMode) {
		return fmt.Errorf("ingressControllerMode: want STRICT, DEFAULT or OFF, got %q", o.IngressControllerMode)
	}
	return nil
}

// Group is the name of the group of what all objects of a source become.
const Group = "derived"

// Set holds the objects of one source, and the last good version of those that are broken. It is not safe for concurrent use.
type Set struct {
	opts    Options
	groups  map[string]*group // what each file has, or other group of objects that change together
	placed  map[resource.Key]placed
	changed bool // since Content was last asked

	// Inherited says that an earlier run has derived objects, and that it may not be known yet what all of them were made of.
	Inherited bool
	unknown   string // the place of what is not known, as Content said it last
}

// group is what a group has.
type group struct {
	objects []*object
	rejects []*sources.Reject // of which an object of the Set may be the last good version
	fresh   bool              // it was put since Content was last asked
}

// placed is an object and the group that has it, or that has something else in its place.
type placed struct {
	*object
	group string
}

// NewSet returns an empty set.
func NewSet(o Options) *Set {
	o.DomainSuffix = cmp.Or(o.DomainSuffix, "cluster.local")
	o.IngressClass = cmp.Or(o.IngressClass, "istio")
	o.IngressSelector = cmp.Or(o.IngressSelector, "ingressgateway")
	o.IngressNamespace = cmp.Or(o.IngressNamespace, "istio-system")
	return &Set{opts: o, groups: make(map[string]*group)}
}

// Replace keeps the objects of a group, such as a file, instead of those that it had. It makes rejects of those that are invalid.
func (s *Set) Replace(name string, c *sources.Content) {
	g := &group{fresh: true}
	for _, r := range c.Resources {
		if r.Key().Kind == resource.ServiceEntry { // to which routes may refer
			text, _ := resource.MarshalJSON(r)
			other := resource.Other{APIVersion: istioGroup + "/v1", JSON: text}
			c.Others = append(c.Others, sources.Other{Other: other, Key: r.Key(), Origin: r.Origin()})
		}
	}
	for _, other := range c.Others {
		other.Key = unscoped(other.Key)
		if o, err := decode(other); err == nil {
			g.objects = append(g.objects, o)
		} else {
			c.Rejects = append(c.Rejects, sources.Reject{
				Key: other.Key, Foreign: true, Origin: other.Origin, Err: fmt.Errorf("%s: %s: %w", other.Origin, other.Key, err),
			})
		}
	}
	for i := range c.Rejects {
		r := &c.Rejects[i]
		r.Derives = r.Foreign && kindNamed(r.Key.Kind).Kind != ""
		if r.Key = unscoped(r.Key); r.Derives || r.Key.Name == "" {
			g.rejects = append(g.rejects, r)
		}
	}
	s.put(name, g)
}

// unscoped returns the key of an object without the default namespace that it was given, if it can be in none.
func unscoped(key resource.Key) resource.Key {
	if k := kindNamed(key.Kind); k.Kind != "" && !k.Namespaced {
		key.Namespace = ""
	}
	return key
}

// Remove forgets a group.
func (s *Set) Remove(name string) { s.put(name, nil) }

// Text returns the object of a group as Replace reads it; nil if the group has no valid one.
func (s *Set) Text(name string) (text []byte) {
	if g := s.groups[name]; g != nil && len(g.objects) == 1 {
		text, _ = json.Marshal(map[string]any{"metadata": g.objects[0].metadata, "spec": g.objects[0].content})
	}
	return text
}

// Has reports whether it is known what a group has.
func (s *Set) Has(name string) bool { return s.groups[name] != nil }

func (s *Set) put(name string, g *group) {
	before, now := cmp.Or(s.groups[name], &group{}), cmp.Or(g, &group{})
	s.changed = s.changed || len(before.rejects)+len(now.rejects) > 0 || !reflect.DeepEqual(before.objects, now.objects)
	if s.groups[name] = g; g == nil {
		delete(s.groups, name)
	}
}

// Content returns what all objects become, if that may have changed since it was last asked. unread returns the place of something that
// was not read yet, or ""; it is asked only as long as what an earlier run derived may be made of that.
func (s *Set) Content(unread func() string) (c sources.Content, changed bool) {
	if !s.changed && !s.Inherited {
		return c, false
	}
	warnings, unknown := s.place()
	changed, s.changed = s.changed, false
	if s.Inherited {
		if unknown = cmp.Or(unknown, unread()); unknown != "" {
			c.Rejects = []sources.Reject{{Origin: resource.Origin{Place: unknown}, Err: fmt.Errorf("%s: it is not known what is derived from "+
				"it: what was derived before the start stays", unknown)}}
		}
		changed = changed || unknown != s.unknown || unknown == ""
		s.Inherited, s.unknown = unknown != "", unknown
	}
	if changed {
		rejects := c.Rejects
		c = s.derive()
		c.Rejects, c.Warnings = rejects, append(warnings, c.Warnings...)
	}
	return c, changed
}

// place finds which objects there are: of several with one key the first, in the order of groups, and the last good version of one that is
// gone where a reject may be a new version of it: a reject of its key, or one that is too broken to tell what it is, of the same group or
// of one that it may have moved to. It notes of which rejects the last good version counts, and returns the place of one of which nothing
// is known, if any.
func (s *Set) place() (warnings []string, unknown string) {
	gone, names := s.placed, slices.Sorted(maps.Keys(s.groups))
	s.placed = make(map[resource.Key]placed, len(gone))
	for _, name := range names {
		for _, o := range s.groups[name].objects {
			if first, repeated := s.placed[o.Key]; repeated {
				warnings = append(warnings, fmt.Sprintf("%s: %s is also at %s, which comes first", o.origin, o.Key, first.origin))
			} else {
				s.placed[o.Key] = placed{o, name}
			}
			delete(gone, o.Key)
		}
	}
	for _, name := range names {
		g := s.groups[name]
		for _, r := range g.rejects {
			_, known := s.placed[r.Key]
			for key, last := range gone {
				_, held := s.placed[key]
				if key == r.Key || r.Key.Name == "" && (last.group == name || g.fresh && !held) {
					s.placed[key], known = placed{last.object, name}, true
				}
			}
			if g.fresh {
				r.LastGood = known
			}
			if !known {
				unknown = cmp.Or(unknown, r.Origin.Place)
			}
		}
		g.fresh = false
	}
	return warnings, unknown
}
