// Package derive makes Istio's Gateways, VirtualServices and DestinationRules of objects of the Kubernetes Gateway API and of Ingresses, as
// istiod 1.27.9 does (its pilot/pkg/config/kube/gateway and ingress). It is pure: what it knows is what was put into a Set.
// docs/gateway-api.md says what becomes what, and where it differs from istiod.
package derive

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tributary/resource"
)

// Options are the settings of a Set. The zero value is the default.
type Options struct {
	// DomainSuffix is that of the hosts of Services; "cluster.local" if empty.
	DomainSuffix string
	// DefaultNamespace is that of objects that name none; "default" if empty.
	DefaultNamespace string
	// GatewayClasses are the names of the classes that are served, whatever their GatewayClass says. If there are none, "istio" is, and
	// each class whose GatewayClass names istiod's controller.
	GatewayClasses []string
	// AllServices says that every Service of the cluster is put into the Set: a backend that is none of them is refused, and gateways
	// are selected by their Service. Otherwise, backends are taken as they are named, and gateways are selected by label.
	AllServices bool
	IngressOptions
}

// Problem is something that an object asks for and does not get.
type Problem struct {
	Origin  resource.Origin
	Key     resource.Key // of the object, whose kind is one of Kinds
	Field   string       // "spec.rules[0].backendRefs[1]"; empty if it is about the object as a whole
	Message string       // what is wrong, and what follows
}

// Error returns the place, the object, the field and the message.
func (p *Problem) Error() string {
	text := p.Key.String() + ": "
	if p.Origin != (resource.Origin{}) {
		text = p.Origin.String() + ": " + text
	}
	if p.Field != "" {
		text += p.Field + ": "
	}
	return text + p.Message
}

// Set holds the objects of one source. It is not safe for concurrent use.
type Set struct {
	opts    Options
	objects map[string]map[name]*object // by kind
}

// name is that of an object among those of its kind.
type name struct{ namespace, name string }

// NewSet returns an empty set.
func NewSet(o Options) *Set {
	o.DomainSuffix = cmp.Or(o.DomainSuffix, "cluster.local")
	o.DefaultNamespace = cmp.Or(o.DefaultNamespace, "default")
	o.IngressControllerMode = cmp.Or(o.IngressControllerMode, ingressStrict)
	o.IngressClass = cmp.Or(o.IngressClass, "istio")
	o.IngressSelector = cmp.Or(o.IngressSelector, "ingressgateway")
	o.IngressNamespace = cmp.Or(o.IngressNamespace, "istio-system")
	return &Set{opts: o, objects: make(map[string]map[name]*object)}
}

// Put decodes an object, which is JSON, and keeps it instead of an earlier version. If it is invalid, the earlier version stays.
func (s *Set) Put(apiVersion, kind string, origin resource.Origin, json []byte) error {
	o, err := decode(apiVersion, kind, json)
	if err != nil {
		return err
	}
	k := kindByName[kind]
	switch {
	case !k.Namespaced:
		o.Namespace = ""
	case o.Namespace == "":
		o.Namespace = s.opts.DefaultNamespace
	}
	o.kind, o.origin = kind, origin
	if s.objects[kind] == nil {
		s.objects[kind] = make(map[name]*object)
	}
	s.objects[kind][o.name()] = o
	return nil
}

// Delete forgets an object, if it is there. Its namespace is as it was put: empty for the default one.
func (s *Set) Delete(kind, namespace, objectName string) {
	k, ok := kindByName[kind]
	if !ok {
		return
	}
	if namespace == "" && k.Namespaced {
		namespace = s.opts.DefaultNamespace
	}
	delete(s.objects[kind], name{namespace, objectName})
}

// Derive returns what the objects become, ordered by key, and what is wrong with them. The origin of a resource names the objects that
// it is made of.
func (s *Set) Derive() (resources []*resource.Resource, problems []Problem) {
	d := newDerivation(s)
	for _, k := range Kinds {
		for _, o := range s.objects[k.Kind] {
			for _, f := range o.strange {
				d.report(o, f.field, "%s, or one that is not supported: it is not read", f.what)
			}
		}
	}
	d.gateways()
	d.routes()
	d.policies()
	d.ingresses()
	slices.SortFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return slices.SortedFunc(maps.Values(d.made), func(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) }), d.problems
}

// all returns the objects of some kinds in the order of their precedence: by age, namespace and name.
func (s *Set) all(kinds ...string) (objects []*object) {
	for _, kind := range kinds {
		objects = slices.AppendSeq(objects, maps.Values(s.objects[kind]))
	}
	slices.SortFunc(objects, older)
	return objects
}

func older(a, b *object) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.kind, b.kind))
}

// originOf names the places of several objects, up to a few.
func originOf(objects []*object) resource.Origin {
	origin := objects[0].origin
	const most = 3
	var places []string
	for _, o := range objects {
		if o.origin.Group != origin.Group {
			origin.Group = ""
		}
		if !slices.Contains(places, o.origin.Place) {
			places = append(places, o.origin.Place)
		}
	}
	if len(places) > most {
		places = append(places[:most], fmt.Sprintf("%d more", len(places)-most))
	}
	origin.Place = strings.Join(places, ", ")
	return origin
}
