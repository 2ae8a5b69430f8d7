package resource

import (
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
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

// hostFields are the fields that istiod completes if they hold a short host name.
var hostFields = map[protoreflect.FullName]bool{
	"istio.networking.v1alpha3.DestinationRule.host": true,
	"istio.networking.v1alpha3.VirtualService.hosts": true,
	"istio.networking.v1alpha3.Destination.host":     true, // of routes and mirrors
}

// replaceHosts replaces each of hostFields in a spec by the result of f, which gets its path and value.
func replaceHosts(spec proto.Message, f func(field, host string) string) {
	switch spec.(type) {
	case *networking.DestinationRule, *networking.VirtualService:
		replaceTexts(spec.ProtoReflect(), hostFields, "", f)
	}
}

// replaceTexts replaces some fields of m, and of the messages in it, by the results of f, which gets the path and the
// value of each.
func replaceTexts(
	m protoreflect.Message, fields map[protoreflect.FullName]bool, path string, f func(field, text string) string,
) {
	descriptors := m.Descriptor().Fields()
	for i := range descriptors.Len() {
		fd := descriptors.Get(i)
		isText := fields[fd.FullName()]
		if fd.IsMap() || !isText && fd.Message() == nil || !m.Has(fd) {
			continue
		}
		visit := func(field string, v protoreflect.Value) protoreflect.Value {
			if isText {
				return protoreflect.ValueOfString(f(field, v.String()))
			}
			replaceTexts(v.Message(), fields, field+".", f)
			return v
		}
		field := path + fd.JSONName()
		if !fd.IsList() {
			m.Set(fd, visit(field, m.Get(fd)))
			continue
		}
		list := m.Mutable(fd).List()
		for n := range list.Len() {
			list.Set(n, visit(fmt.Sprintf("%s[%d]", field, n), list.Get(n)))
		}
	}
}

// warnShortHosts warns of host names without a dot. istiod completes them by namespace and domain, but an object that
// came over MCP has no domain: "reviews" in namespace shop becomes "reviews.shop", and not
// "reviews.shop.svc.cluster.local" as it would of the same object in Kubernetes (observed: istiod 1.27.9).
func warnShortHosts(r *Resource, spec proto.Message) (warnings Errors) {
	replaceHosts(spec, func(field, host string) string {
		if isShort(host) && !strings.ContainsAny(host, "*/") {
			warnings = append(warnings, errorOf(r,
				"%s: %q has no domain: istiod will take it to be %q; write the host in full, or set domainSuffix", field, host,
				host+"."+r.key.Namespace))
		}
		return host
	})
	return warnings
}

// DerivedFrom is the annotation that names the origins of a derived object: KIND/NAMESPACE/NAME, ", " between two.
const DerivedFrom = "tributary/derived-from"

// RefusedHost is the host of refused backends of the Gateway API. No service has it.
const RefusedHost = "internal.cluster.local"

// GatewaySemantics is the annotation of a Gateway that derives from the Gateway API, with the value "gateway".
const GatewaySemantics = "internal.istio.io/gateway-semantics"

// RouteSemantics is the annotation of a VirtualService that is derived of an object of Kubernetes: "gateway" for
// Gateway API, which has no short names, "ingress" for an Ingress.
const RouteSemantics = "internal.istio.io/route-semantics"

// completeHosts completes the short host names in the spec of an object, as istiod does with an object of domain
// suffix.
func completeHosts(meta Meta, spec proto.Message, suffix string) {
	if meta.Annotations[RouteSemantics] == "gateway" {
		return
	}
	replaceHosts(spec, func(_, host string) string {
		if isShort(host) {
			host += "." + meta.Key.Namespace + ".svc." + suffix
		}
		return host
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
