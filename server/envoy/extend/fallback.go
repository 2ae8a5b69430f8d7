package extend

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	directv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
)

// generatedFilters matches the types of filters that tributary makes from objects other than EnvoyFilters and
// WasmPlugins.
var generatedFilters = regexp.MustCompile(
	`(router\.v3\.Router|rbac\.v3\.RBAC|JwtAuthentication|ExtAuthz|HTTPFault|Cors|grpc_stats\.v3\.FilterConfig|` +
		`GrpcWeb|OnDemand|TlsInspector|HttpInspector|OriginalDst|OriginalSrc|ProxyProtocol|` +
		strings.Join(terminal, "|") + `)$`)

// Fallback returns a substitute, and its description, for an Envoy that rejects a listener and holds an earlier one,
// or nil if the held listener enforces the same policies. held is nil if it is unknown. The first fallback has the
// policies of the rejected listener, with the filters of EnvoyFilters and WasmPlugins, the logs and the traces of the
// held one. After a repeated reject the fallback closes all connections.
func Fallback(held, rejected *listenerv3.Listener, repeated bool) (instead *listenerv3.Listener, description string) {
	if !repeated {
		listener := proto.CloneOf(rejected)
		listener.AccessLog, listener.ListenerFilters = held.GetAccessLog(),
			keepGenerated(listener.GetListenerFilters(), held.GetListenerFilters())
		before := chainsByMatch(held)
		for match, chain := range chainsByMatch(listener) {
			keepHeld(chain, before[match])
		}
		bindAs(listener, cmp.Or(held, rejected)) // the new sockets may be the reason of the reject
		if held != nil && protectionBy(listener).equals(protectionBy(held)) {
			return nil, ""
		}
		plugins := held == nil && strings.Contains(string(model.MustMarshal(rejected)), pluginPrefix) // one may be held
		if !plugins && !proto.Equal(listener, rejected) && refused(listener, 0) == "" {
			return listener, "the current policies, with the EnvoyFilters, plugins, logs and traces that it last accepted"
		}
	}
	listener := &listenerv3.Listener{
		Name: rejected.GetName(), TrafficDirection: rejected.GetTrafficDirection(),
		DefaultFilterChain: &listenerv3.FilterChain{
			Filters: []*listenerv3.Filter{model.NetworkFilter("envoy.filters.network.direct_response", &directv3.Config{})},
		},
	}
	bindAs(listener, cmp.Or(held, rejected))
	return listener, "a listener that closes all connections"
}

// bindAs gives a listener the sockets of a template.
func bindAs(listener, template *listenerv3.Listener) {
	listener.ListenerSpecifier, listener.Address, listener.AdditionalAddresses = nil, template.GetAddress(),
		template.GetAdditionalAddresses()
	listener.BindToPort, listener.EnableReusePort = template.GetBindToPort(), template.GetEnableReusePort()
	listener.Transparent = template.GetTransparent()
}

// chainsByMatch returns the filter chains of a listener by their encoded match. The key of the default chain is
// "default".
func chainsByMatch(listener *listenerv3.Listener) map[string]*listenerv3.FilterChain {
	chains := make(map[string]*listenerv3.FilterChain)
	for _, chain := range listener.GetFilterChains() {
		chains[string(model.MustMarshal(chain.GetFilterChainMatch()))] = chain
	}
	if chain := listener.GetDefaultFilterChain(); chain != nil {
		chains["default"] = chain
	}
	return chains
}

// keepHeld replaces the parts of a filter chain that do not enforce policies by those that an Envoy holds. held is nil
// if the Envoy has no such chain.
func keepHeld(chain, held *listenerv3.FilterChain) {
	chain.Filters = keepGenerated(chain.GetFilters(), held.GetFilters())
	for _, filter := range chain.GetFilters() {
		var heldFilter *listenerv3.Filter
		if i := slices.IndexFunc(held.GetFilters(),
			func(h *listenerv3.Filter) bool { return h.GetName() == filter.GetName() }); i >= 0 {
			heldFilter = held.GetFilters()[i]
		}
		manager, before := &hcmv3.HttpConnectionManager{}, &hcmv3.HttpConnectionManager{}
		tcpProxy, tcpBefore := &tcpv3.TcpProxy{}, &tcpv3.TcpProxy{}
		switch {
		case filter.GetTypedConfig().UnmarshalTo(manager) == nil:
			_ = heldFilter.GetTypedConfig().UnmarshalTo(before) // else it stays empty
			manager.HttpFilters = keepGenerated(manager.GetHttpFilters(), before.GetHttpFilters())
			manager.AccessLog, manager.Tracing = before.GetAccessLog(), before.GetTracing()
			filter.GetTypedConfig().Value = model.MustMarshal(manager)
		case filter.GetTypedConfig().UnmarshalTo(tcpProxy) == nil:
			_ = heldFilter.GetTypedConfig().UnmarshalTo(tcpBefore)
			tcpProxy.AccessLog = tcpBefore.GetAccessLog()
			filter.GetTypedConfig().Value = model.MustMarshal(tcpProxy)
		}
	}
}

// keepGenerated keeps generated filters. It replaces other filters by those that an Envoy holds under the same name,
// and drops those that it does not hold.
func keepGenerated[F typedFilter](filters, held []F) (merged []F) {
	for _, filter := range filters {
		if generatedFilters.MatchString(filter.GetTypedConfig().GetTypeUrl()) {
			merged = append(merged, filter)
			continue
		}
		i := slices.IndexFunc(held, func(heldFilter F) bool { return heldFilter.GetName() == filter.GetName() })
		if i >= 0 {
			merged = append(merged, held[i])
		}
	}
	return merged
}
