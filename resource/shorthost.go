package resource

import (
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/validation/agent"
)

// isShort reports whether istiod completes a host name: one without a dot, which is neither the wildcard nor an
// address.
func isShort(host string) bool {
	if host == "" || host == "*" || strings.Contains(host, ".") {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err != nil
}

// shortHosts calls visit with each field of spec that istiod completes if it holds a short host name, with its path. It
// does without reflection, since it reads every object.
func shortHosts(spec proto.Message, visit func(field string, host *string)) {
	destination := func(field string, d *networking.Destination) {
		if d != nil {
			visit(field+".host", &d.Host)
		}
	}
	routes := func(kind string, i int, destinations []*networking.RouteDestination) {
		for k, d := range destinations {
			destination(fmt.Sprintf("%s[%d].route[%d].destination", kind, i, k), d.Destination)
		}
	}
	switch spec := spec.(type) {
	case *networking.DestinationRule:
		visit("host", &spec.Host)
	case *networking.VirtualService:
		for i := range spec.Hosts {
			visit(fmt.Sprintf("hosts[%d]", i), &spec.Hosts[i])
		}
		for i, route := range spec.Http {
			for k, d := range route.Route {
				destination(fmt.Sprintf("http[%d].route[%d].destination", i, k), d.Destination)
			}
			destination(fmt.Sprintf("http[%d].mirror", i), route.Mirror)
			for k, d := range route.Mirrors {
				destination(fmt.Sprintf("http[%d].mirrors[%d].destination", i, k), d.Destination)
			}
		}
		for i, route := range spec.Tcp {
			routes("tcp", i, route.Route)
		}
		for i, route := range spec.Tls {
			routes("tls", i, route.Route)
		}
	}
}

// warnShortHosts warns of host names without a dot. istiod completes them by namespace and domain, but an object that
// came over MCP has no domain: "reviews" in namespace shop becomes "reviews.shop", and not
// "reviews.shop.svc.cluster.local" as it would of the same object in Kubernetes (observed: istiod 1.27.9).
func warnShortHosts(resource *Resource, spec proto.Message) (warnings Errors) {
	shortHosts(spec, func(field string, host *string) {
		if isShort(*host) && !strings.ContainsAny(*host, "*/") {
			warnings = append(warnings, errorOf(resource,
				"%s: %q has no domain: istiod will take it to be %q; write the host in full, or set domainSuffix", field, *host,
				*host+"."+resource.key.Namespace))
		}
	})
	return warnings
}

// DerivedFrom is the annotation that names the origins of a derived object: KIND/NAMESPACE/NAME, separated by ", ".
const DerivedFrom = "tributary/derived-from"

// RefusedHost is the host of refused backends of the Gateway API. No service has it.
const RefusedHost = "internal.cluster.local"

// GatewaySemantics is the annotation of a Gateway that derives from the Gateway API, with the value "gateway".
const GatewaySemantics = "internal.istio.io/gateway-semantics"

// RouteSemantics is the annotation of a VirtualService that is derived from an object of Kubernetes: "gateway" for
// Gateway API, which has no short names, "ingress" for an Ingress.
const RouteSemantics = "internal.istio.io/route-semantics"

// completeHosts completes the short host names in the spec of an object. istiod does the same for an object with the
// domain suffix.
func completeHosts(meta Meta, spec proto.Message, suffix string) {
	if meta.Annotations[RouteSemantics] == "gateway" {
		return
	}
	shortHosts(spec, func(_ string, host *string) {
		if isShort(*host) {
			*host += "." + meta.Key.Namespace + ".svc." + suffix
		}
	})
}

// CheckHost returns an error of a host of a service, which may begin with a wildcard.
func CheckHost(name string) error { return agent.ValidateWildcardDomain(name) }

// CheckDomain returns an error of a domain suffix; an empty one is valid.
func CheckDomain(suffix string) error {
	if suffix == "" {
		return nil
	}
	if err := checkName(suffix); err != nil {
		return fmt.Errorf("want a domain such as cluster.local: %w", err)
	}
	return nil
}
