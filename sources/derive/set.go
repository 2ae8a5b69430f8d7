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
	// GatewayClasses are the served classes, independent of their GatewayClass. Default: "istio", and each class with a
	// GatewayClass of istiod's controller.
	GatewayClasses []string
	// AllServices says that the Set has every Service of the cluster: an unknown backend is reported, and Services select
	// gateways. Otherwise, any backend may exist, and labels select gateways.
	AllServices bool
	// PrefixRewrite uses the field for redirects that replace a prefix, of istiod 1.31 and later.
	PrefixRewrite bool

	// The served Ingresses and their workloads, as in Istio's mesh configuration.
	IngressControllerMode string // "STRICT" (default): Ingresses of the class; "DEFAULT": also without a class; "OFF"
	IngressClass          string // the served class; default "istio"
	IngressSelector       string // the value of the workloads' label istio; default "ingressgateway"
	IngressNamespace      string // of the Gateways; default "istio-system"
}

// Check returns an error of the options.
func (o Options) Check() error {
	if !slices.Contains([]string{"", "STRICT", "DEFAULT", "OFF"}, o.IngressControllerMode) {
		return fmt.Errorf("ingressControllerMode: want STRICT, DEFAULT or OFF, got %q", o.IngressControllerMode)
	}
	return nil
}

// Group is the name of the group of all derived objects of a source.
const Group = "derived"

// Set has the objects of one source, and the last good version of broken ones. It is not safe for concurrent use.
type Set struct {
	opts    Options
	groups  map[string]*group // by file, or other unit of objects that change together
	placed  map[resource.Key]placed
	changed bool // since the last call of Content

	// Inherited says that an earlier run has derived objects, and that some of their inputs may be unread.
	Inherited bool
	unknown   string // place of an unread input, from the last call of Content
}

// group has the objects of a file, or another unit.
type group struct {
	objects []*object
	rejects []*sources.Reject // an object of the Set may be their last good version
	fresh   bool              // put since the last call of Content
}

// placed is an object and its group, or the group of its reject.
type placed struct {
	*object
	group string
}

// NewSet returns an empty set.
func NewSet(options Options) *Set {
	options.DomainSuffix = cmp.Or(options.DomainSuffix, "cluster.local")
	options.IngressClass = cmp.Or(options.IngressClass, "istio")
	options.IngressSelector = cmp.Or(options.IngressSelector, "ingressgateway")
	options.IngressNamespace = cmp.Or(options.IngressNamespace, "istio-system")
	return &Set{opts: options, groups: make(map[string]*group)}
}

// Replace replaces the objects of a group, such as a file. Invalid ones become rejects.
func (s *Set) Replace(name string, content *sources.Content) {
	group := &group{fresh: true}
	for _, object := range content.Resources {
		if object.Key().Kind == resource.ServiceEntry { // routes may refer to it
			text, _ := resource.MarshalJSON(object)
			converted := resource.Other{APIVersion: istioGroup + "/v1", JSON: text}
			content.Others = append(content.Others, sources.Other{Other: converted, Key: object.Key(), Origin: object.Origin()})
		}
	}
	for _, input := range content.Others {
		input.Key = unscoped(input.Key)
		if o, err := decode(input); err == nil {
			group.objects = append(group.objects, o)
		} else {
			content.Rejects = append(content.Rejects, sources.Reject{
				Key: input.Key, Foreign: true, Origin: input.Origin, Err: fmt.Errorf("%s: %s: %w", input.Origin, input.Key, err),
			})
		}
	}
	for i := range content.Rejects {
		reject := &content.Rejects[i]
		reject.Derives = reject.Foreign && kindNamed(reject.Key.Kind).Kind != ""
		if reject.Key = unscoped(reject.Key); reject.Derives || reject.Key.Name == "" {
			group.rejects = append(group.rejects, reject)
		}
	}
	s.put(name, group)
}

// unscoped removes the default namespace from the key of an object that has none.
func unscoped(key resource.Key) resource.Key {
	if k := kindNamed(key.Kind); k.Kind != "" && !k.Namespaced {
		key.Namespace = ""
	}
	return key
}

// Remove removes a group.
func (s *Set) Remove(name string) { s.put(name, nil) }

// Text returns the object of a group in the form that Replace reads; nil without a valid one.
func (s *Set) Text(name string) (text []byte) {
	if g := s.groups[name]; g != nil && len(g.objects) == 1 {
		text, _ = json.Marshal(map[string]any{"metadata": g.objects[0].metadata, "spec": g.objects[0].content})
	}
	return text
}

// Has reports whether the Set has a group.
func (s *Set) Has(name string) bool { return s.groups[name] != nil }

func (s *Set) put(name string, next *group) {
	before, now := cmp.Or(s.groups[name], &group{}), cmp.Or(next, &group{})
	s.changed = s.changed || len(before.rejects)+len(now.rejects) > 0 || !reflect.DeepEqual(before.objects, now.objects)
	if s.groups[name] = next; next == nil {
		delete(s.groups, name)
	}
}

// Content returns the derived objects if they may have changed since the last call. unread returns the place of an
// unread input, or ""; it is called while the objects of an earlier run may depend on such an input.
func (s *Set) Content(unread func() string) (content sources.Content, changed bool) {
	if !s.changed && !s.Inherited {
		return content, false
	}
	warnings, unknown := s.place()
	changed, s.changed = s.changed, false
	if s.Inherited {
		if unknown = cmp.Or(unknown, unread()); unknown != "" {
			content.Rejects = []sources.Reject{{
				Origin: resource.Origin{Place: unknown},
				Err: fmt.Errorf("%s: it is not known what is derived from "+
					"it: what was derived before the start stays", unknown),
			}}
		}
		changed = changed || unknown != s.unknown || unknown == ""
		s.Inherited, s.unknown = unknown != "", unknown
	}
	if changed {
		rejects := content.Rejects
		content = s.derive()
		content.Rejects, content.Warnings = rejects, append(warnings, content.Warnings...)
	}
	return content, changed
}

// place selects the current objects: of several with one key the first in the order of groups, and the last good
// version of a missing object if a reject may be a new version of it. Such a reject has its key, or is too broken to
// have one and is in the same group, or in one that the object may have moved to. place marks the rejects with a last
// good version, and returns the place of one without, if any.
func (s *Set) place() (warnings []string, unknown string) {
	missing, names := s.placed, slices.Sorted(maps.Keys(s.groups))
	s.placed = make(map[resource.Key]placed, len(missing))
	for _, name := range names {
		for _, object := range s.groups[name].objects {
			if first, repeated := s.placed[object.Key]; repeated {
				warnings = append(warnings,
					fmt.Sprintf("%s: %s is also at %s, which comes first", object.origin, object.Key, first.origin))
			} else {
				s.placed[object.Key] = placed{object, name}
			}
			delete(missing, object.Key)
		}
	}
	for _, name := range names {
		group := s.groups[name]
		for _, reject := range group.rejects {
			_, hasLastGood := s.placed[reject.Key]
			for key, last := range missing {
				_, held := s.placed[key]
				if key == reject.Key || reject.Key.Name == "" && (last.group == name || group.fresh && !held) {
					s.placed[key], hasLastGood = placed{last.object, name}, true
				}
			}
			if group.fresh {
				reject.LastGood = hasLastGood
			}
			if !hasLastGood {
				unknown = cmp.Or(unknown, reject.Origin.Place)
			}
		}
		group.fresh = false
	}
	return warnings, unknown
}
