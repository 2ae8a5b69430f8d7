package resource

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// warnShortHosts warns of host names without a dot. istiod completes them by namespace and domain, but an object that
// came over MCP has no domain: "reviews" in namespace shop becomes "reviews.shop", and not
// "reviews.shop.svc.cluster.local" as it would of the same object in Kubernetes (observed: istiod 1.27.9).
func warnShortHosts(r *Resource, spec proto.Message) (warnings Errors) {
	check := func(field, host string) {
		if host == "" || strings.ContainsAny(host, ".*/") {
			return
		}
		warnings = append(warnings, errorOf(r, "%w", fmt.Errorf(
			"%s: %q has no domain: istiod will take it to be %q; write the host in full", field, host, host+"."+r.key.Namespace)))
	}
	destination := func(field string, d *networking.Destination) { check(field+".host", d.GetHost()) }
	switch spec := spec.(type) {
	case *networking.DestinationRule:
		check("host", spec.Host)
	case *networking.VirtualService:
		for i, host := range spec.Hosts {
			check(fmt.Sprintf("hosts[%d]", i), host)
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
			for k, d := range route.Route {
				destination(fmt.Sprintf("tcp[%d].route[%d].destination", i, k), d.Destination)
			}
		}
		for i, route := range spec.Tls {
			for k, d := range route.Route {
				destination(fmt.Sprintf("tls[%d].route[%d].destination", i, k), d.Destination)
			}
		}
	}
	return warnings
}
