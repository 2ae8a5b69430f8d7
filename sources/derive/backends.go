package derive

import (
	"cmp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// weighted is a backend that has a part of the traffic.
type weighted struct {
	*backendRef
	index int   // in the list of the rule
	share int32 // its weight; 0 if it is the only one
}

func weight(b *backendRef) int32 {
	if b.Weight == nil {
		return 1
	}
	return *b.Weight
}

func weights(refs []backendRef) (sum int) {
	for i := range refs {
		sum += int(weight(&refs[i]))
	}
	return sum
}

// positive returns the backends that have a weight.
func positive(refs []backendRef) []weighted {
	var all []weighted
	for i := range refs {
		if w := weight(&refs[i]); w != 0 {
			all = append(all, weighted{&refs[i], i, w})
		}
	}
	if len(all) == 1 {
		all[0].share = 0
	}
	return all
}

// nowhere is a destination that does not exist. A gateway answers 500 for it, and closes connections. istiod has an empty destination for
// a backend that is refused, and takes such a VirtualService from nobody.
func nowhere(subset string) *networking.Destination {
	return &networking.Destination{
		Host: "internal.cluster.local", Subset: subset, Port: &networking.PortSelector{Number: 65535},
	}
}

// refused is the subset of the destination in the place of a backend that is refused.
const refused = "refused-backend"

// destination converts a backend. A backend that is not allowed, or of which there is none, is reported, and its part of the traffic goes
// nowhere. It returns false after having reported what makes the route worthless.
func (c *ruleConverter) destination(b *backendRef, field string) (*networking.Destination, bool) {
	namespace := b.in(c.route.Namespace)
	group, kind := b.kindOf("", "Service")
	var hostname string
	exists := true
	switch {
	case group == "" && kind == "Service":
		if !c.inMesh && !c.allowed(c.route, kind, namespace, b.Name) {
			c.report(c.route, c.field+field,
				"no ReferenceGrant of namespace %s lets a %s of %s refer to Service %s: requests for it fail with 500",
				namespace, c.route.kind, c.route.Namespace, b.Name)
			return nowhere(refused), true
		}
		if strings.Contains(b.Name, ".") {
			c.refuse(field+".name", "%q is a host, and the name of a Service is wanted", b.Name)
			return nil, false
		}
		hostname, exists = c.serviceHost(namespace, b.Name), !c.missingService(namespace, b.Name)
	case group == istioGroup && kind == "Hostname":
		if b.Namespace != "" && (c.inMesh || b.Namespace == c.route.Namespace) {
			c.refuse(field+".namespace", "a Hostname has none")
			return nil, false
		}
		hostname = b.Name
	case group == "multicluster.x-k8s.io" && kind == "ServiceImport":
		hostname, exists = c.serviceHost(namespace, b.Name), !c.missingService(namespace, b.Name)
	default:
		c.report(c.route, c.field+field, "kind %s of %q is not supported: requests for it fail with 500", kind, cmp.Or(group, "core"))
		return nowhere(refused), true
	}
	if !exists {
		c.report(c.route, c.field+field, "Service %s/%s does not exist: requests for it fail with 500", namespace, b.Name)
	}
	if b.Port == 0 {
		c.refuse(field+".port", "it is missing")
		return nil, false
	}
	return &networking.Destination{Host: hostname, Port: &networking.PortSelector{Number: b.Port}}, true
}
