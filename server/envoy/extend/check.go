package extend

import (
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
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/envoy/model"
)

// visit calls f with a message and all that are in it, but for what an Any has.
func visit(m protoreflect.Message, f func(protoreflect.Message)) {
	f(m)
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.IsMap() && d.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				visit(v.Message(), f)
				return true
			})
		case d.IsMap() || d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message(), f)
			}
		default:
			visit(v.Message(), f)
		}
		return true
	})
}

// refused says why Envoy would refuse a message, or returns nothing. regex says that of a regular expression; nil takes all.
func refused(m proto.Message, regex regexCheck) (why string) {
	if v, ok := m.(interface{ Validate() error }); ok {
		why = model.Refused(v)
	}
	visit(m.ProtoReflect(), func(m protoreflect.Message) {
		if why != "" {
			return
		}
		switch m := m.Interface().(type) {
		case *anypb.Any:
			content, err := m.UnmarshalNew()
			if err != nil {
				why = err.Error()
				return
			}
			why = refused(content, regex)
		case *routev3.RouteConfiguration:
			why = sharedDomain(m)
		case *matcherv3.RegexMatcher:
			if regex != nil {
				why = regex(m.GetRegex())
			}
		case *corev3.HeaderValueOption:
			if !model.IsLogFormat(m.GetHeader().GetValue()) {
				why = "Envoy does not know what is between the percent signs of " + m.GetHeader().GetValue()
			}
		case *corev3.ExtensionConfigSource:
			if m.GetConfigSource().GetAds() != nil {
				why = "extension configurations are not served"
			}
		case *hcmv3.HttpConnectionManager:
			why = outOfOrder("HTTP filter", m.GetHttpFilters(), isRouter)
		case *listenerv3.FilterChain:
			why = outOfOrder("network filter", m.GetFilters(), isTerminal)
		}
	})
	return why
}

// outOfOrder says why the order of filters is none that Envoy takes: the last one, and no other, has to be terminal.
func outOfOrder[F interface {
	GetName() string
	GetTypedConfig() *anypb.Any
}](what string, filters []F, isTerminal func(typeURL string) bool,
) string {
	for i, f := range filters {
		switch isLast := i == len(filters)-1; {
		case isTerminal(f.GetTypedConfig().GetTypeUrl()) && !isLast:
			return "Envoy would refuse it: " + f.GetName() + " has to be the last " + what
		case !isTerminal(f.GetTypedConfig().GetTypeUrl()) && isLast:
			return "Envoy would refuse it: " + f.GetName() + " cannot be the last " + what
		}
	}
	return ""
}

func isRouter(typeURL string) bool { return strings.HasSuffix(typeURL, "http.router.v3.Router") }

// isTerminal says whether a network filter answers connections, or passes them on.
func isTerminal(typeURL string) bool {
	for name := range strings.FieldsSeq("TcpProxy HttpConnectionManager RedisProxy ThriftProxy DubboProxy GenericProxy Echo " +
		"v3.Config SipProxy RocketmqProxy ReverseTunnel") {
		if strings.HasSuffix(typeURL, name) && (name != "v3.Config" || strings.Contains(typeURL, "direct_response")) {
			return true
		}
	}
	return false
}

// refusedCluster says why Envoy would refuse a cluster, or clients would not find it.
func refusedCluster(was, now *clusterv3.Cluster, regex regexCheck) string {
	if was.GetName() != now.GetName() {
		return "what leads to the cluster " + was.GetName() + " would not find it as " + now.GetName()
	}
	if original := now.GetType() == clusterv3.Cluster_ORIGINAL_DST; original != (now.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED) &&
		now.GetClusterType() == nil && now.GetLoadBalancingPolicy() == nil {
		return "Envoy would refuse it: the type of the cluster, " + now.GetType().String() + ", does not go with the policy " +
			now.GetLbPolicy().String()
	}
	return refused(now, regex)
}

func refusedListener(was, now *listenerv3.Listener, regex regexCheck) string {
	if was.GetName() != now.GetName() {
		return "a listener cannot be renamed"
	}
	matches := make(map[string]bool)
	for _, c := range now.GetFilterChains() {
		m := string(model.MustMarshal(c.GetFilterChainMatch()))
		if matches[m] {
			return "Envoy would refuse it: several filter chains of " + now.GetName() + " have the same match"
		}
		matches[m] = true
	}
	if len(now.GetFilterChains()) == 0 && now.GetDefaultFilterChain() == nil {
		return "Envoy would refuse it: " + now.GetName() + " has no filter chain left"
	}
	return refused(now, regex)
}

func refusedRoutes(was, now *routev3.RouteConfiguration, regex regexCheck) string {
	if was.GetName() != now.GetName() {
		return "routes cannot be renamed"
	}
	return refused(now, regex)
}

// sharedDomain says why Envoy would refuse routes of which several virtual hosts have a domain.
func sharedDomain(r *routev3.RouteConfiguration) string {
	domains := make(map[string]bool)
	for _, v := range r.GetVirtualHosts() {
		for _, d := range v.GetDomains() {
			if d = strings.ToLower(d); domains[d] {
				return "Envoy would refuse it: several virtual hosts of " + r.GetName() + " have the domain " + d
			}
			domains[d] = true
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

// guards returns what secures a filter chain: filters, and the wish for a certificate of the client.
func guards(c *listenerv3.FilterChain) (all []string) {
	tls := &tlsv3.DownstreamTlsContext{}
	if c.GetTransportSocket().GetTypedConfig().UnmarshalTo(tls) == nil && tls.GetRequireClientCertificate().GetValue() {
		all = append(all, "certificates")
	}
	for _, f := range c.GetFilters() {
		if isSecurity(f.GetName()) {
			all = append(all, string(model.MustMarshal(f)))
		}
		m := &hcmv3.HttpConnectionManager{}
		if f.GetTypedConfig().UnmarshalTo(m) != nil {
			continue
		}
		for _, f := range m.GetHttpFilters() {
			if isSecurity(f.GetName()) {
				all = append(all, string(model.MustMarshal(f)))
			}
		}
	}
	return all
}

// disarmed says whether a listener has a filter chain that is less secure than it was, or, of those that are new, than the others were.
func disarmed(was, now *listenerv3.Listener) bool {
	before := make(map[string][]string)
	some := false
	chains := func(l *listenerv3.Listener) []*listenerv3.FilterChain {
		return append(slices.Clip(l.GetFilterChains()), l.GetDefaultFilterChain())
	}
	match := func(c *listenerv3.FilterChain) string { return string(model.MustMarshal(c.GetFilterChainMatch())) }
	for _, c := range chains(was) {
		all := guards(c)
		before[match(c)] = append(before[match(c)], all...)
		some = some || len(all) > 0
	}
	for _, c := range chains(now) {
		left, known := before[match(c)]
		all := guards(c)
		for _, g := range all {
			if len(left) > 0 && left[0] == g {
				left = left[1:]
			}
		}
		if some && c != nil && (len(left) > 0 || !known && len(all) == 0) {
			return true
		}
	}
	return false
}

// switchesOff says whether routes change filters that enforce security.
func switchesOff(m proto.Message) (some bool) {
	visit(m.ProtoReflect(), func(m protoreflect.Message) {
		if f := m.Descriptor().Fields().ByName("typed_per_filter_config"); f != nil {
			m.Get(f).Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				some = some || isSecurity(k.String())
				return true
			})
		}
	})
	return some
}
