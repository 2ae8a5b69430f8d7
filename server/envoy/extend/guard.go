package extend

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// leftToRoot says why a patch is left out that bypasses what enforces security objects.
const leftToRoot = "envoy.weakeningFilters allows only EnvoyFilters of " + model.RootNamespace + " to change, to precede or to go round " +
	"what enforces security objects"

// ofListeners are the parts of listeners that decide which policies a request or connection meets.
var ofListeners = []networking.EnvoyFilter_ApplyTo{
	networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_FILTER_CHAIN,
	networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER,
}

// mayBypass reports whether the patch is of a namespace other than the root, and of a kind that can bypass policies.
func (s *step) mayBypass() bool {
	return s.Of.Namespace != model.RootNamespace && (slices.Contains(ofListeners, s.ApplyTo) || s.switchesOff())
}

// switchesOff reports whether the patch configures filters that enforce security for some routes.
func (s *step) switchesOff() bool { return s.Value != nil && switchesOff(s.Value) }

// mayBypass reports whether one of the steps from a resource before to now may bypass policies.
func mayBypass(steps []*step, before, now proto.Message, keep bool) bool {
	used := slices.DeleteFunc(slices.Clone(steps), func(s *step) bool { return !s.used || !s.mayBypass() })
	return slices.ContainsFunc(used, (*step).switchesOff) || len(used) > 0 && enforcesLess(before, now, keep)
}

// guard takes back patches that bypass policies. It measures at most maxMeasured of a resource.
type guard[M proto.Message] struct {
	before   M // the resource before the last patch that may bypass policies
	saved    bool
	measured int
}

// save remembers a resource, unless the step cannot bypass policies. It returns false for a step that it does not measure.
func (g *guard[M]) save(s *step, m M) bool {
	if s.mayBypass() && !g.saved {
		s.flush()
		g.before, g.saved = proto.CloneOf(m), true
	}
	return g.measured < maxMeasured || !s.mayBypass()
}

// bypassed reports whether the step, after which the resource is now, bypasses policies.
func (g *guard[M]) bypassed(s *step, now M, keep bool) bool {
	if !s.used {
		return false
	}
	if g.saved = false; !s.mayBypass() {
		return false
	}
	g.measured++
	s.flush()
	return s.switchesOff() || enforcesLess(g.before, now, keep)
}

// enforcesLess reports whether policies of a listener are not enforced now, or not as before.
func enforcesLess(before, now proto.Message, keep bool) bool {
	was, is := before.(*listenerv3.Listener)
	if !is {
		return false
	}
	policies := make(map[string]bool)
	model.Visit(was, func(m proto.Message, _ bool) {
		if f, is := m.(filter); is && isPolicy(f.GetName()) {
			policies[string(model.MustMarshal(f))] = true
		}
	})
	required := slices.ContainsFunc(was.GetFilterChains(), requiresCertificate) || requiresCertificate(was.GetDefaultFilterChain())
	if len(policies) == 0 && !required {
		return false
	}
	return !keep || !proto.Equal(enforcement(was, policies), enforcement(now.(*listenerv3.Listener), policies))
}

// isPolicy reports whether a filter of this name enforces a security object; a plugin does not.
func isPolicy(name string) bool { return isSecurity(name) && !strings.HasPrefix(name, pluginPrefix) }

func requiresCertificate(c *listenerv3.FilterChain) bool {
	tls := &tlsv3.DownstreamTlsContext{}
	return c.GetTransportSocket().GetTypedConfig().UnmarshalTo(tls) == nil && tls.GetRequireClientCertificate().GetValue()
}

// enforcement returns what of a listener has a say in how policies are enforced: which filter chain a connection gets, the client
// certificates, and the filters up to the last one that is among policies, with what these can see.
func enforcement(l *listenerv3.Listener, policies map[string]bool) *listenerv3.Listener {
	l = proto.CloneOf(l)
	dropHarmless(l)
	for _, c := range append(slices.Clip(l.GetFilterChains()), l.GetDefaultFilterChain()) {
		if c == nil {
			continue
		}
		if dropHarmless(c); !requiresCertificate(c) {
			c.TransportSocket = nil
		}
		kept := upToLast(c.GetFilters(), policies)
		for i, f := range c.GetFilters() {
			m := &hcmv3.HttpConnectionManager{}
			if f.GetTypedConfig().UnmarshalTo(m) != nil {
				continue
			}
			if m.HttpFilters = upToLast(m.GetHttpFilters(), policies); len(m.GetHttpFilters()) > 0 {
				dropHarmless(m)
				kept, f.GetTypedConfig().Value = c.GetFilters()[:i+1], model.MustMarshal(m)
			}
		}
		c.Filters = kept
	}
	return l
}

// upToLast returns the filters up to the last one that is among policies.
func upToLast[F filter](filters []F, policies map[string]bool) []F {
	for i, f := range slices.Backward(filters) {
		if policies[string(model.MustMarshal(f))] {
			return filters[:i+1]
		}
	}
	return nil
}

// harmless are the fields of listeners, filter chains and HTTP connection managers that do not bear on policies.
var harmless = []protoreflect.Name{
	"name", "stat_prefix", "metadata", "access_log", "tracing", "tcp_backlog_size", "connection_balance_config", "drain_type",
	"per_connection_buffer_limit_bytes", "transport_socket_connect_timeout", "server_name", "server_header_transformation",
	"rds", "route_config", "scoped_routes", "stream_idle_timeout", "request_timeout", "request_headers_timeout", "drain_timeout",
	"delayed_close_timeout", "max_request_headers_kb", "local_reply_config", "http2_protocol_options", "generate_request_id",
	"preserve_external_request_id", "always_set_request_id_in_response",
}

func dropHarmless(m proto.Message) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for _, name := range harmless {
		if field := fields.ByName(name); field != nil {
			m.ProtoReflect().Clear(field)
		}
	}
}
