package translate

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/data/dns/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/dns_filter/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// ResolverName is the name of the listener that answers DNS queries.
const ResolverName = "dns"

// The port of Istio's agent for DNS queries, and its TTL.
const (
	resolverPort = 15053
	recordTTL    = 30 * time.Second

	forwardTimeout = 5 * time.Second
	maxForwarded   = 1024 // queries at once
)

// Resolver returns the listener that answers DNS queries for hosts by their addresses, and forwards others to the
// resolvers of the machine.
func Resolver(hosts map[string]*Translation) (listener *listenerv3.Listener, findings model.Findings) {
	table := new(dnsv3.DnsTable)
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		translation := hosts[host]
		if domain, wild := strings.CutPrefix(host, "*"); len(translation.Addresses) > 0 && wild &&
			strings.Count(domain, ".") < 2 {
			for _, object := range translation.Objects {
				if object.Kind == resource.ServiceEntry {
					findings.Note(model.PlaceIn(object, "spec.hosts"),
						"Envoy resolves wildcards of two labels and more: queries for %s are "+
							"forwarded", host)
				}
			}
		} else if len(translation.Addresses) > 0 {
			table.VirtualDomains = append(table.VirtualDomains, &dnsv3.DnsTable_DnsVirtualDomain{
				Name: host, AnswerTtl: durationpb.New(recordTTL),
				Endpoint: &dnsv3.DnsTable_DnsEndpoint{EndpointConfig: &dnsv3.DnsTable_DnsEndpoint_AddressList{
					AddressList: &dnsv3.DnsTable_AddressList{Address: translation.Addresses},
				}},
			})
		}
	}
	return &listenerv3.Listener{
		Name: ResolverName, TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Protocol: corev3.SocketAddress_UDP, Address: model.Localhost,
			PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: resolverPort},
		}}},
		ListenerFilters: []*listenerv3.ListenerFilter{listenerFilter("envoy.filters.udp.dns_filter",
			&filterv3.DnsFilterConfig{
				StatPrefix: ResolverName,
				ServerConfig: &filterv3.DnsFilterConfig_ServerContextConfig{
					ConfigSource: &filterv3.DnsFilterConfig_ServerContextConfig_InlineDnsTable{InlineDnsTable: table},
				},
				ClientConfig: &filterv3.DnsFilterConfig_ClientContextConfig{
					ResolverTimeout: durationpb.New(forwardTimeout), MaxPendingLookups: maxForwarded,
					TypedDnsResolverConfig: &corev3.TypedExtensionConfig{
						Name: "envoy.network.dns_resolver.cares",
						TypedConfig: model.ToAny(&caresv3.CaresDnsResolverConfig{ // programs append search domains themselves
							DnsResolverOptions: &corev3.DnsResolverOptions{NoDefaultSearchDomain: true},
						}),
					},
				},
			})},
	}, findings
}
