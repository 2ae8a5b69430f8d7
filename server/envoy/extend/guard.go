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

// rootOnly says why a patch that bypasses security objects is left out.
const rootOnly = "envoy.weakeningFilters allows only EnvoyFilters of " + model.RootNamespace +
	" to change, precede or bypass the enforcement of security objects"

// protectedParts are the parts of listeners that decide which policies a request or connection meets.
var protectedParts = []networking.EnvoyFilter_ApplyTo{
	networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_FILTER_CHAIN,
	networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER,
}

// mayBypass reports whether the patch belongs to a namespace other than the root, and can bypass policies.
func (s *step) mayBypass() bool {
	return s.Object.Namespace != model.RootNamespace && (slices.Contains(protectedParts, s.ApplyTo) || s.switchesOff())
}

// switchesOff reports whether the patch configures security filters for single routes.
func (s *step) switchesOff() bool { return s.Value != nil && switchesOff(s.Value) }

// mayBypass reports whether one of the steps between two versions of a resource may bypass policies.
func mayBypass(steps []*step, before, patched proto.Message, keep bool) bool {
	used := slices.DeleteFunc(slices.Clone(steps), func(s *step) bool { return !s.matched || !s.mayBypass() })
	return slices.ContainsFunc(used, (*step).switchesOff) || len(used) > 0 && enforcesLess(before, patched, keep)
}

// guard takes back patches that bypass policies. It measures at most maxMeasured patches of a resource.
type guard[M proto.Message] struct {
	before   M // the resource before the last patch that may bypass policies
	saved    bool
	measured int
}

// save copies the resource before a step that may bypass policies. It returns false for such a step beyond maxMeasured.
func (g *guard[M]) save(current *step, resource M) bool {
	if current.mayBypass() && !g.saved {
		current.flush()
		g.before, g.saved = proto.CloneOf(resource), true
	}
	return g.measured < maxMeasured || !current.mayBypass()
}

// bypassed reports whether the step that led to the patched resource bypasses policies.
func (g *guard[M]) bypassed(current *step, patched M, keep bool) bool {
	if !current.matched {
		return false
	}
	if g.saved = false; !current.mayBypass() {
		return false
	}
	g.measured++
	current.flush()
	return current.switchesOff() || enforcesLess(g.before, patched, keep)
}

// enforcesLess reports whether a patched listener no longer enforces policies in the same way.
func enforcesLess(before, patched proto.Message, keep bool) bool {
	previous, ok := before.(*listenerv3.Listener)
	if !ok {
		return false
	}
	policies := make(map[string]bool)
	model.Visit(previous, func(m proto.Message, _ bool) {
		if f, ok := m.(typedFilter); ok && isPolicy(f.GetName()) {
			policies[string(model.MustMarshal(f))] = true
		}
	})
	required := slices.ContainsFunc(previous.GetFilterChains(), requiresCertificate) ||
		requiresCertificate(previous.GetDefaultFilterChain())
	if len(policies) == 0 && !required {
		return false
	}
	return !keep || !proto.Equal(enforcement(previous, policies), enforcement(patched.(*listenerv3.Listener), policies))
}

// isPolicy reports whether a filter of this name enforces a security object. A plugin enforces none.
func isPolicy(name string) bool { return isSecurity(name) && !strings.HasPrefix(name, pluginPrefix) }

func requiresCertificate(chain *listenerv3.FilterChain) bool {
	tls := &tlsv3.DownstreamTlsContext{}
	return chain.GetTransportSocket().GetTypedConfig().UnmarshalTo(tls) == nil &&
		tls.GetRequireClientCertificate().GetValue()
}

// enforcement returns the parts of a listener that influence the enforcement of policies: the choice of a filter
// chain, the client certificates, and the filters up to the last policy, since earlier filters change its input.
func enforcement(listener *listenerv3.Listener, policies map[string]bool) *listenerv3.Listener {
	listener = proto.CloneOf(listener)
	clearIrrelevant(listener)
	for _, chain := range append(slices.Clip(listener.GetFilterChains()), listener.GetDefaultFilterChain()) {
		if chain == nil {
			continue
		}
		if clearIrrelevant(chain); !requiresCertificate(chain) {
			chain.TransportSocket = nil
		}
		enforcing := throughLast(chain.GetFilters(), policies)
		for i, filter := range chain.GetFilters() {
			manager := &hcmv3.HttpConnectionManager{}
			if filter.GetTypedConfig().UnmarshalTo(manager) != nil {
				continue
			}
			if manager.HttpFilters = throughLast(manager.GetHttpFilters(), policies); len(manager.GetHttpFilters()) > 0 {
				clearIrrelevant(manager)
				enforcing, filter.GetTypedConfig().Value = chain.GetFilters()[:i+1], model.MustMarshal(manager)
			}
		}
		chain.Filters = enforcing
	}
	return listener
}

// throughLast returns the filters up to the last policy.
func throughLast[F typedFilter](filters []F, policies map[string]bool) []F {
	for i, filter := range slices.Backward(filters) {
		if policies[string(model.MustMarshal(filter))] {
			return filters[:i+1]
		}
	}
	return nil
}

// irrelevantFields of listeners, filter chains and HTTP connection managers do not influence policies.
var irrelevantFields = []protoreflect.Name{
	"name", "stat_prefix", "metadata", "access_log", "tracing", "tcp_backlog_size", "connection_balance_config",
	"drain_type",
	"per_connection_buffer_limit_bytes", "transport_socket_connect_timeout", "server_name", "server_header_transformation",
	"rds", "route_config", "scoped_routes", "stream_idle_timeout", "request_timeout", "request_headers_timeout",
	"drain_timeout",
	"delayed_close_timeout", "max_request_headers_kb", "local_reply_config", "http2_protocol_options",
	"generate_request_id",
	"preserve_external_request_id", "always_set_request_id_in_response",
}

func clearIrrelevant(message proto.Message) {
	fields := message.ProtoReflect().Descriptor().Fields()
	for _, name := range irrelevantFields {
		if field := fields.ByName(name); field != nil {
			message.ProtoReflect().Clear(field)
		}
	}
}
