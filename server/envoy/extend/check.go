package extend

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/envoy/model"
)

// refused says why Envoy would refuse a message, or returns "". maxProgram is the limit of a regular expression's
// instructions, or 0 for none.
func refused(message proto.Message, maxProgram int) string {
	return cmp.Or(invalid(message), misplaced(message), refusedPart(message, maxProgram))
}

// invalid says which rule of Envoy's API a message breaks.
func invalid(message proto.Message) string {
	if v, ok := message.(interface{ Validate() error }); ok {
		return model.Refused(v)
	}
	return ""
}

// refusedPart says why Envoy would refuse a message within a message.
func refusedPart(root proto.Message, maxProgram int) (reason string) {
	model.Visit(root, func(message proto.Message, complete bool) {
		if complete && reason == "" && message != root {
			reason = invalid(message)
		}
		if reason == "" && message != root {
			reason = misplaced(message)
		}
		if reason != "" {
			return
		}
		switch typed := message.(type) {
		case *clusterv3.Cluster:
			if original := typed.GetType() == clusterv3.Cluster_ORIGINAL_DST; typed.GetClusterType() == nil &&
				typed.GetLoadBalancingPolicy() == nil &&
				original != (typed.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED) {
				reason = fmt.Sprintf("Envoy would refuse it: the type of the cluster, %s, does not go with the policy %s",
					typed.GetType(),
					typed.GetLbPolicy())
			}
		case *matcherv3.RegexMatcher:
			if maxProgram > 0 {
				reason = model.RegexProblem(typed.GetRegex(), maxProgram)
			}
		case *corev3.ExtensionConfigSource:
			if typed.GetConfigSource().GetAds() != nil {
				reason = "extension configurations are not served"
			}
		}
		reason = cmp.Or(reason, model.InvalidPart(message))
	})
	return reason
}

// misplaced says why Envoy would refuse the combination of a message's elements, each valid alone.
func misplaced(message proto.Message) string {
	switch typed := message.(type) {
	case *listenerv3.Listener:
		if typed.GetApiListener() != nil {
			return "Envoy would ignore it: a listener with an api_listener belongs to the bootstrap"
		}
		return duplicateMatch(typed)
	case *routev3.RouteConfiguration:
		return duplicateDomain(typed, typed.GetVirtualHosts())
	case *hcmv3.HttpConnectionManager:
		return outOfOrder("HTTP filter", typed.GetHttpFilters(), terminalHTTP)
	case *listenerv3.FilterChain:
		return outOfOrder("network filter", typed.GetFilters(), terminal)
	}
	return ""
}

// The types of filters that answer requests or pass them on: only the last filter of a chain has such a type.
var (
	terminal = []string{
		"TcpProxy", "HttpConnectionManager", "RedisProxy", "ThriftProxy", "DubboProxy", "GenericProxy", "SipProxy",
		"RocketmqProxy", "Echo", "ReverseTunnel", "direct_response.v3.Config",
	}
	terminalHTTP = []string{"http.router.v3.Router"}
)

// outOfOrder says why Envoy would refuse the order of filters.
func outOfOrder[F typedFilter](kind string, filters []F, terminal []string) string {
	for i, filter := range filters {
		isLast := i == len(filters)-1
		url := filter.GetTypedConfig().GetTypeUrl()
		isTerminal := slices.ContainsFunc(terminal, func(suffix string) bool { return strings.HasSuffix(url, suffix) })
		switch {
		case isTerminal && !isLast:
			return "Envoy would refuse it: " + filter.GetName() + " has to be the last " + kind
		case !isTerminal && isLast:
			return "Envoy would refuse it: " + filter.GetName() + " cannot be the last " + kind
		}
	}
	return ""
}

// duplicateMatch says why Envoy would refuse the filter chains of a listener.
func duplicateMatch(listener *listenerv3.Listener) string {
	matches := make(map[string]bool)
	for _, chain := range listener.GetFilterChains() {
		if isEmpty(chain) { // dropped in the end
			continue
		}
		match := string(model.MustMarshal(chain.GetFilterChainMatch()))
		if matches[match] {
			return "Envoy would refuse it: several filter chains of " + listener.GetName() + " have the same match"
		}
		matches[match] = true
	}
	if udp := listener.GetAddress().GetSocketAddress().GetProtocol() == corev3.SocketAddress_UDP; len(matches) == 0 &&
		isEmpty(listener.GetDefaultFilterChain()) && !udp && listener.GetApiListener() == nil {
		return "Envoy would refuse it: " + listener.GetName() + " has no filter chain left"
	}
	return ""
}

// duplicateDomain says why Envoy would refuse routes: several virtual hosts share a domain of hosts.
func duplicateDomain(routes *routev3.RouteConfiguration, hosts []*routev3.VirtualHost) string {
	domains := make(map[string]bool) // whether a virtual host of the routes claims the domain
	for _, host := range hosts {
		for _, domain := range host.GetDomains() {
			domains[strings.ToLower(domain)] = false
		}
	}
	for _, host := range routes.GetVirtualHosts() {
		for _, domain := range host.GetDomains() {
			domain = strings.ToLower(domain)
			switch duplicate, listed := domains[domain]; {
			case duplicate:
				return "Envoy would refuse it: several virtual hosts of " + routes.GetName() + " have the domain " + domain
			case listed:
				domains[domain] = true
			}
		}
	}
	return ""
}

// pluginPrefix is that of the names of the filters of WasmPlugins, as with istiod.
const pluginPrefix = "extensions.istio.io/wasmplugin/"

// isSecurity says whether a filter enforces security, or may do so.
func isSecurity(name string) bool {
	if strings.HasPrefix(name, pluginPrefix) {
		return true
	}
	switch strings.TrimPrefix(strings.TrimPrefix(name, "envoy.filters.http."), "envoy.filters.network.") {
	case "rbac", "jwt_authn", "ext_authz":
		return true
	}
	return false
}

// protection counts the guards of a listener, which enforce policies: filters and required certificates, each with
// the match of its filter chain and the normalization of paths. Filter chains without guards are open.
type protection struct {
	guards map[string]int
	open   int
}

func protectionBy(message proto.Message) protection {
	listener, _ := message.(*listenerv3.Listener)
	result := protection{guards: make(map[string]int)}
	for match, chain := range chainsByMatch(listener) {
		var guards []string
		paths := ""
		model.Visit(chain, func(part proto.Message, _ bool) {
			switch typed := part.(type) {
			case *hcmv3.HttpConnectionManager:
				paths += fmt.Sprint(typed.GetNormalizePath(), typed.GetMergeSlashes(), typed.GetPathWithEscapedSlashesAction())
			case *tlsv3.DownstreamTlsContext:
				if typed.GetRequireClientCertificate().GetValue() {
					guards = append(guards, "certificates")
				}
			case typedFilter:
				if isSecurity(typed.GetName()) {
					guards = append(guards, string(model.MustMarshal(typed)))
				}
			}
		})
		for _, guard := range guards {
			result.guards[match+paths+guard]++
		}
		if len(guards) == 0 {
			result.open++
		}
	}
	return result
}

// lessThan reports whether a listener enforces less than it did before.
func (p protection) lessThan(before protection) bool {
	for guard, n := range before.guards {
		if p.guards[guard] < n || p.open > before.open {
			return true
		}
	}
	return false
}

// equals reports whether two listeners enforce the same.
func (p protection) equals(expected protection) bool {
	return maps.Equal(p.guards, expected.guards) && (len(p.guards) == 0 || p.open == expected.open)
}

// switchesOff says whether routes change filters that enforce security.
func switchesOff(m proto.Message) (overrides bool) {
	model.Visit(m, func(m proto.Message, _ bool) {
		if f, ok := m.(interface {
			GetTypedPerFilterConfig() map[string]*anypb.Any
		}); ok {
			overrides = overrides || slices.ContainsFunc(slices.Collect(maps.Keys(f.GetTypedPerFilterConfig())), isSecurity)
		}
	})
	return overrides
}
