package derive

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"

	"tributary/resource"
)

// derivation is one run of Derive.
type derivation struct {
	*Set
	grants    map[grant]bool
	listeners map[parentKey][]*boundListener
	taken     map[string]bool              // names of the Gateways of listeners, "namespace/name"
	known     map[string]map[string]string // labels by namespace; see namespaces
	made      map[resource.Key]*resource.Resource
	problems  []Problem
}

func newDerivation(s *Set) *derivation {
	return &derivation{
		Set: s, grants: grantsOf(s), listeners: make(map[parentKey][]*boundListener), taken: make(map[string]bool),
		made: make(map[resource.Key]*resource.Resource),
	}
}

// report adds a problem of an object.
func (d *derivation) report(o *object, field, format string, args ...any) {
	d.problems = append(d.problems, Problem{Origin: o.origin, Key: o.key(), Field: field, Message: fmt.Sprintf(format, args...)})
}

// The annotations by which istiod knows what was made of the Gateway API, and treats it as that API wants it.
const (
	gatewaySemantics = "internal.istio.io/gateway-semantics"
	routeSemantics   = "internal.istio.io/route-semantics"
	gatewayService   = "internal.istio.io/gateway-service"
	serviceAccount   = "internal.istio.io/service-account-name"
	semantics        = "gateway"
)

// add makes a resource of spec, which was made of objects; the first of them lends it its age.
func (d *derivation) add(kind resource.Kind, namespace, name string, annotations map[string]string, spec proto.Message, of ...*object) {
	key := resource.Key{Kind: kind, Namespace: namespace, Name: name}
	if other, ok := d.made[key]; ok {
		d.report(of[0], "", "%s is already made of %s: nothing is made of this one", key, other.Origin())
		return
	}
	r, err := resource.New(resource.Meta{
		Key: key, Annotations: annotations, Created: of[0].CreationTimestamp, Origin: originOf(of),
	}, spec)
	if err != nil {
		d.report(of[0], "", "%v", err)
		return
	}
	d.made[key] = r
}

// serviceHost is the host of a Service.
func (d *derivation) serviceHost(namespace, name string) string {
	return name + "." + namespace + ".svc." + d.opts.DomainSuffix
}

// find returns an object, or nil.
func (d *derivation) find(kind, namespace, objectName string) *object {
	return d.objects[kind][name{namespace, objectName}]
}

// missingService reports whether it is known that there is no such Service.
func (d *derivation) missingService(namespace, name string) bool {
	return d.opts.AllServices && d.find("Service", namespace, name) == nil
}

// kindOf is the group and the kind of a reference, with defaults for what it leaves out.
func (r *reference) kindOf(group, kind string) (string, string) {
	if r.Group != nil {
		group = *r.Group
	}
	if r.Kind != nil {
		kind = *r.Kind
	}
	return group, kind
}

// in is the namespace of a reference in an object of another namespace.
func (r *reference) in(namespace string) string { return cmp.Or(r.Namespace, namespace) }

// indexed is the path of a field in lists.
func indexed(format string, i ...any) string { return fmt.Sprintf(format, i...) }
