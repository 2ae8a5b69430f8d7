package transform

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// reference is the type of a name in a field.
type reference int

const (
	toHost           reference = iota // "reviews.shop.svc"
	toNamespacedHost                  // "shop/reviews.shop.svc", or a host alone
	toNamespace                       // "shop"
	toNamespacedName                  // "shop/ingress", or a name alone
	toMatchedHost                     // a StringMatch of "reviews.shop.svc" or "reviews.shop.svc:80"
)

// references are the fields that are rewritten, so that references to an object stay right. Other fields that may
// have a host stay as they are: addresses of endpoints, the authority of rewrites and redirects, subject alternative
// names, the SNI of TLS settings, and policies of security. Istio refuses sniHosts that are no hosts of the
// VirtualService.
var references = map[protoreflect.FullName]reference{
	"istio.networking.v1alpha3.ServiceEntry.hosts":           toHost,
	"istio.networking.v1alpha3.VirtualService.hosts":         toHost,
	"istio.networking.v1alpha3.Destination.host":             toHost, // of routes and mirrors
	"istio.networking.v1alpha3.DestinationRule.host":         toHost,
	"istio.networking.v1alpha3.TLSMatchAttributes.sni_hosts": toHost,
	"istio.networking.v1alpha3.HTTPMatchRequest.authority":   toMatchedHost,
	"istio.networking.v1alpha3.Server.hosts":                 toNamespacedHost, // of a Gateway
	"istio.networking.v1alpha3.IstioEgressListener.hosts":    toNamespacedHost, // of a Sidecar

	"istio.networking.v1alpha3.ServiceEntry.export_to":              toNamespace,
	"istio.networking.v1alpha3.VirtualService.export_to":            toNamespace,
	"istio.networking.v1alpha3.DestinationRule.export_to":           toNamespace,
	"istio.networking.v1alpha3.Delegate.namespace":                  toNamespace,
	"istio.networking.v1alpha3.HTTPMatchRequest.source_namespace":   toNamespace,
	"istio.networking.v1alpha3.TLSMatchAttributes.source_namespace": toNamespace,
	"istio.networking.v1alpha3.L4MatchAttributes.source_namespace":  toNamespace,

	"istio.networking.v1alpha3.VirtualService.gateways":     toNamespacedName,
	"istio.networking.v1alpha3.HTTPMatchRequest.gateways":   toNamespacedName,
	"istio.networking.v1alpha3.TLSMatchAttributes.gateways": toNamespacedName,
	"istio.networking.v1alpha3.L4MatchAttributes.gateways":  toNamespacedName,
}

// referring are the kinds that have such fields.
var referring = map[resource.Kind]bool{
	resource.ServiceEntry: true, resource.VirtualService: true, resource.DestinationRule: true,
	resource.Gateway: true, resource.Sidecar: true,
}

// hostsOf returns the hosts that an object is for.
func hostsOf(spec proto.Message) []string {
	switch message := spec.(type) {
	case *networking.ServiceEntry:
		return message.GetHosts()
	case *networking.VirtualService:
		return message.GetHosts()
	case *networking.DestinationRule:
		return []string{message.GetHost()}
	case *networking.Gateway:
		var hosts []string
		for _, server := range message.GetServers() {
			for _, h := range server.GetHosts() {
				hosts = append(hosts, h[strings.IndexByte(h, '/')+1:])
			}
		}
		return hosts
	}
	return nil
}
