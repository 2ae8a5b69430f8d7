package resource

import (
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// IsAddress reports whether text is an IP address without a zone. A zone, as in fe80::1%eth0, names an interface of one machine, and Envoy
// rejects a whole resource for one.
func IsAddress(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Zone() == ""
}

// checkZones returns an error for each address in spec that has a zone. Istio's validation accepts these.
func checkZones(r *Resource, spec proto.Message) (errs Errors) {
	check := func(text, field string, indexes ...any) {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() != "" {
			errs = append(errs, errorOf(r, "%w", fmt.Errorf("spec.%s: %q has a zone, which Envoy rejects: write the address without %q",
				fmt.Sprintf(field, indexes...), text, "%"+a.Zone())))
		}
	}
	switch spec := spec.(type) {
	case *networking.ServiceEntry:
		for i, a := range spec.GetAddresses() {
			check(a, "addresses[%d]", i)
		}
		for i, e := range spec.GetEndpoints() {
			check(e.GetAddress(), "endpoints[%d].address", i)
		}
	case *networking.WorkloadEntry:
		check(spec.GetAddress(), "address")
	case *networking.WorkloadGroup:
		check(spec.GetTemplate().GetAddress(), "template.address")
	case *networking.Gateway:
		for i, s := range spec.GetServers() {
			check(s.GetBind(), "servers[%d].bind", i)
		}
	case *networking.Sidecar:
		for i, e := range spec.GetEgress() {
			check(e.GetBind(), "egress[%d].bind", i)
		}
		for i, in := range spec.GetIngress() {
			check(in.GetBind(), "ingress[%d].bind", i)
		}
	case *networking.VirtualService:
		for i, route := range spec.GetTls() {
			for k, m := range route.GetMatch() {
				for n, a := range m.GetDestinationSubnets() {
					check(a, "tls[%d].match[%d].destinationSubnets[%d]", i, k, n)
				}
			}
		}
		for i, route := range spec.GetTcp() {
			for k, m := range route.GetMatch() {
				for n, a := range m.GetDestinationSubnets() {
					check(a, "tcp[%d].match[%d].destinationSubnets[%d]", i, k, n)
				}
			}
		}
	}
	return errs
}
