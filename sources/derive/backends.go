package derive

import (
	"cmp"
	"fmt"
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

// backend converts a backend. One that is not allowed, or of which there is none, is reported, and its part of the traffic fails. It
// returns false after having reported what makes the route worthless.
func (c *ruleConverter) backend(b *backendRef, field string) (*networking.Destination, bool) {
	to, wrong, worthless := c.destination(b)
	if worthless {
		c.refuse(field, "%s", wrong)
		return nil, false
	}
	if wrong != "" {
		c.report(c.route, c.field+field, "%s: what is sent to it fails", wrong)
	}
	return to, true
}

// destination converts a reference to a backend, and says what is wrong with it, and whether that makes the route worthless.
func (c *ruleConverter) destination(b *backendRef) (to *networking.Destination, wrong string, worthless bool) {
	namespace := b.in(c.route.Namespace)
	group, kind := b.kindOf("", "Service")
	hostname := c.serviceHost(namespace, b.Name)
	isService, isImport := group == "" && kind == "Service", group == multiclusterGroup && kind == "ServiceImport"
	switch {
	case (isService || isImport) && !c.inMesh && !c.allowed(c.route, kind, namespace, b.Name):
		return nowhere(refused), fmt.Sprintf("no ReferenceGrant of namespace %s lets a %s of %s refer to %s %s",
			namespace, c.route.kind, c.route.Namespace, kind, b.Name), false
	case isService && strings.Contains(b.Name, "."):
		return nil, fmt.Sprintf("%q is a host, and the name of a Service is wanted", b.Name), true
	case isService, isImport:
		if c.missingService(namespace, b.Name) {
			wrong = fmt.Sprintf("Service %s/%s does not exist", namespace, b.Name)
		}
	case group == istioGroup && kind == "Hostname":
		if b.Namespace != "" {
			return nil, "a Hostname has no namespace", true
		}
		hostname = b.Name
	default:
		return nowhere(refused), fmt.Sprintf("kind %s of %q is not supported", kind, cmp.Or(group, "core")), false
	}
	if b.Port == 0 {
		return nil, "port is missing", true
	}
	return &networking.Destination{Host: hostname, Port: &networking.PortSelector{Number: b.Port}}, wrong, false
}
