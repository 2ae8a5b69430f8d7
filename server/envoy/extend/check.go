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

// refused says why Envoy would refuse a message, or returns nothing. largest is how many instructions a regular expression may have, or 0.
func refused(m proto.Message, largest int) string {
	return cmp.Or(invalid(m), misplaced(m), refusedIn(m, largest))
}

// invalid says which rule of Envoy's API a message breaks.
func invalid(m proto.Message) string {
	if v, ok := m.(interface{ Validate() error }); ok {
		return model.Refused(v)
	}
	return ""
}

// refusedIn says why Envoy would refuse what is in a message.
func refusedIn(root proto.Message, largest int) (why string) {
	model.Visit(root, func(m proto.Message, whole bool) {
		if whole && why == "" && m != root {
			why = invalid(m)
		}
		if why == "" && m != root {
			why = misplaced(m)
		}
		if why != "" {
			return
		}
		switch m := m.(type) {
		case *clusterv3.Cluster:
			if original := m.GetType() == clusterv3.Cluster_ORIGINAL_DST; m.GetClusterType() == nil && m.GetLoadBalancingPolicy() == nil &&
				original != (m.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED) {
				why = fmt.Sprintf("Envoy would refuse it: the type of the cluster, %s, does not go with the policy %s", m.GetType(), m.GetLbPolicy())
			}
		case *matcherv3.RegexMatcher:
			if largest > 0 {
				why = model.RegexProblem(m.GetRegex(), largest)
			}
		case *corev3.ExtensionConfigSource:
			if m.GetConfigSource().GetAds() != nil {
				why = "extension configurations are not served"
			}
		}
		why = cmp.Or(why, model.InvalidPart(m))
	})
	return why
}

// misplaced says why Envoy would refuse what a message lists, each valid alone.
func misplaced(m proto.Message) string {
	switch m := m.(type) {
	case *listenerv3.Listener:
		if m.GetApiListener() != nil {
			return "Envoy would ignore it: a listener with an api_listener belongs to the bootstrap"
		}
		return sameMatch(m)
	case *routev3.RouteConfiguration:
		return sharedDomain(m, m.GetVirtualHosts())
	case *hcmv3.HttpConnectionManager:
		return outOfOrder("HTTP filter", m.GetHttpFilters(), terminalHTTP)
	case *listenerv3.FilterChain:
		return outOfOrder("network filter", m.GetFilters(), terminal)
	}
	return ""
}

// The types of filters that answer, or pass on: the last one, and no other, is one of them.
var (
	terminal = []string{
		"TcpProxy", "HttpConnectionManager", "RedisProxy", "ThriftProxy", "DubboProxy", "GenericProxy", "SipProxy", "RocketmqProxy", "Echo",
		"ReverseTunnel", "direct_response.v3.Config",
	}
	terminalHTTP = []string{"http.router.v3.Router"}
)

// outOfOrder says why the order of filters is none that Envoy takes.
func outOfOrder[F filter](what string, filters []F, terminal []string) string {
	for i, f := range filters {
		isLast := i == len(filters)-1
		url := f.GetTypedConfig().GetTypeUrl()
		switch is := slices.ContainsFunc(terminal, func(suffix string) bool { return strings.HasSuffix(url, suffix) }); {
		case is && !isLast:
			return "Envoy would refuse it: " + f.GetName() + " has to be the last " + what
		case !is && isLast:
			return "Envoy would refuse it: " + f.GetName() + " cannot be the last " + what
		}
	}
	return ""
}

// sameMatch says why Envoy would refuse the filter chains of a listener.
func sameMatch(l *listenerv3.Listener) string {
	matches := make(map[string]bool)
	for _, c := range l.GetFilterChains() {
		if isEmpty(c) { // dropped in the end
			continue
		}
		m := string(model.MustMarshal(c.GetFilterChainMatch()))
		if matches[m] {
			return "Envoy would refuse it: several filter chains of " + l.GetName() + " have the same match"
		}
		matches[m] = true
	}
	if udp := l.GetAddress().GetSocketAddress().GetProtocol() == corev3.SocketAddress_UDP; len(matches) == 0 &&
		isEmpty(l.GetDefaultFilterChain()) && !udp && l.GetApiListener() == nil {
		return "Envoy would refuse it: " + l.GetName() + " has no filter chain left"
	}
	return ""
}

// sharedDomain says why Envoy would refuse routes of which several virtual hosts have a domain that is one of others.
func sharedDomain(r *routev3.RouteConfiguration, of []*routev3.VirtualHost) string {
	domains := make(map[string]bool) // whether a virtual host of the routes has it
	for _, v := range of {
		for _, d := range v.GetDomains() {
			domains[strings.ToLower(d)] = false
		}
	}
	for _, v := range r.GetVirtualHosts() {
		for _, d := range v.GetDomains() {
			d = strings.ToLower(d)
			switch has, is := domains[d]; {
			case has:
				return "Envoy would refuse it: several virtual hosts of " + r.GetName() + " have the domain " + d
			case is:
				domains[d] = true
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

func protectionOf(m proto.Message) protection {
	l, _ := m.(*listenerv3.Listener)
	p := protection{guards: make(map[string]int)}
	for match, c := range chainsByMatch(l) {
		var guards []string
		paths := ""
		model.Visit(c, func(m proto.Message, _ bool) {
			switch m := m.(type) {
			case *hcmv3.HttpConnectionManager:
				paths += fmt.Sprint(m.GetNormalizePath(), m.GetMergeSlashes(), m.GetPathWithEscapedSlashesAction())
			case *tlsv3.DownstreamTlsContext:
				if m.GetRequireClientCertificate().GetValue() {
					guards = append(guards, "certificates")
				}
			case filter:
				if isSecurity(m.GetName()) {
					guards = append(guards, string(model.MustMarshal(m)))
				}
			}
		})
		for _, guard := range guards {
			p.guards[match+paths+guard]++
		}
		if len(guards) == 0 {
			p.open++
		}
	}
	return p
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
func (p protection) equals(other protection) bool {
	return maps.Equal(p.guards, other.guards) && (len(p.guards) == 0 || p.open == other.open)
}

// switchesOff says whether routes change filters that enforce security.
func switchesOff(m proto.Message) (some bool) {
	model.Visit(m, func(m proto.Message, _ bool) {
		if f, is := m.(interface {
			GetTypedPerFilterConfig() map[string]*anypb.Any
		}); is {
			some = some || slices.ContainsFunc(slices.Collect(maps.Keys(f.GetTypedPerFilterConfig())), isSecurity)
		}
	})
	return some
}
