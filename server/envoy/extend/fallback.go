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

// ours are the types of filters that tributary makes of objects other than EnvoyFilters and WasmPlugins.
var ours = regexp.MustCompile(`(router\.v3\.Router|rbac\.v3\.RBAC|JwtAuthentication|ExtAuthz|HTTPFault|Cors|grpc_stats\.v3\.FilterConfig|` +
	`GrpcWeb|OnDemand|TlsInspector|HttpInspector|OriginalDst|OriginalSrc|ProxyProtocol|` + strings.Join(terminal, "|") + `)$`)

// Fallback returns the listener for an Envoy that rejects a listener and holds another one, and describes it. It returns nil if the held
// listener enforces the same policies. held is nil if it is unknown. The first fallback has the policies of the rejected listener, and
// filters of EnvoyFilters and WasmPlugins, logs and traces as the Envoy holds them. The second one closes all connections.
func Fallback(held, rejected *listenerv3.Listener, again bool) (instead *listenerv3.Listener, description string) {
	if !again {
		l := proto.CloneOf(rejected)
		l.AccessLog, l.ListenerFilters = held.GetAccessLog(), keepOurs(l.GetListenerFilters(), held.GetListenerFilters())
		before := chainsByMatch(held)
		for match, c := range chainsByMatch(l) {
			keepHeld(c, before[match])
		}
		bindAs(l, cmp.Or(held, rejected)) // the new sockets may be the reason
		if held != nil && protectionOf(l).equals(protectionOf(held)) {
			return nil, ""
		}
		plugins := held == nil && strings.Contains(string(model.MustMarshal(rejected)), pluginPrefix) // one may be held
		if !plugins && !proto.Equal(l, rejected) && refused(l, 0) == "" {
			return l, "the current policies, with the EnvoyFilters, plugins, logs and traces that it last accepted"
		}
	}
	l := &listenerv3.Listener{
		Name: rejected.GetName(), TrafficDirection: rejected.GetTrafficDirection(), DefaultFilterChain: &listenerv3.FilterChain{
			Filters: []*listenerv3.Filter{model.NetworkFilter("envoy.filters.network.direct_response", &directv3.Config{})},
		},
	}
	bindAs(l, cmp.Or(held, rejected))
	return l, "a listener that closes all connections"
}

// bindAs gives a listener the sockets of a template.
func bindAs(l, template *listenerv3.Listener) {
	l.ListenerSpecifier, l.Address, l.AdditionalAddresses = nil, template.GetAddress(), template.GetAdditionalAddresses()
	l.BindToPort, l.EnableReusePort = template.GetBindToPort(), template.GetEnableReusePort()
	l.Transparent = template.GetTransparent()
}

// chainsByMatch returns the filter chains of a listener by what they match; the default one has the key "default".
func chainsByMatch(l *listenerv3.Listener) map[string]*listenerv3.FilterChain {
	chains := make(map[string]*listenerv3.FilterChain)
	for _, c := range l.GetFilterChains() {
		chains[string(model.MustMarshal(c.GetFilterChainMatch()))] = c
	}
	if c := l.GetDefaultFilterChain(); c != nil {
		chains["default"] = c
	}
	return chains
}

// keepHeld replaces what of a filter chain does not enforce policies by what an Envoy holds of it; held is nil if it has no such chain.
func keepHeld(c, held *listenerv3.FilterChain) {
	c.Filters = keepOurs(c.GetFilters(), held.GetFilters())
	for _, f := range c.GetFilters() {
		var heldFilter *listenerv3.Filter
		if i := slices.IndexFunc(held.GetFilters(), func(h *listenerv3.Filter) bool { return h.GetName() == f.GetName() }); i >= 0 {
			heldFilter = held.GetFilters()[i]
		}
		m, before := &hcmv3.HttpConnectionManager{}, &hcmv3.HttpConnectionManager{}
		tcp, tcpBefore := &tcpv3.TcpProxy{}, &tcpv3.TcpProxy{}
		switch {
		case f.GetTypedConfig().UnmarshalTo(m) == nil:
			_ = heldFilter.GetTypedConfig().UnmarshalTo(before) // else it stays empty
			m.HttpFilters = keepOurs(m.GetHttpFilters(), before.GetHttpFilters())
			m.AccessLog, m.Tracing = before.GetAccessLog(), before.GetTracing()
			f.GetTypedConfig().Value = model.MustMarshal(m)
		case f.GetTypedConfig().UnmarshalTo(tcp) == nil:
			_ = heldFilter.GetTypedConfig().UnmarshalTo(tcpBefore)
			tcp.AccessLog = tcpBefore.GetAccessLog()
			f.GetTypedConfig().Value = model.MustMarshal(tcp)
		}
	}
}

// keepOurs returns the filters with each one that is not ours as an Envoy holds it, and without those that it does not hold.
func keepOurs[F filter](filters, held []F) (kept []F) {
	for _, f := range filters {
		if ours.MatchString(f.GetTypedConfig().GetTypeUrl()) {
			kept = append(kept, f)
		} else if i := slices.IndexFunc(held, func(h F) bool { return h.GetName() == f.GetName() }); i >= 0 {
			kept = append(kept, held[i])
		}
	}
	return kept
}
