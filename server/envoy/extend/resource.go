package extend

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Cluster returns a patched cluster, or false if a patch removes it. services are the hosts of an inbound cluster,
// because its name has no host.
func (p *Patcher) Cluster(cluster *clusterv3.Cluster, services ...string) (*clusterv3.Cluster, bool) {
	return apply(p, cluster, ClusterPhases, func(current *step, cluster *clusterv3.Cluster) (keep bool) {
		switch {
		case !current.matchesCluster(cluster, services):
		case current.Operation == networking.EnvoyFilter_Patch_REMOVE:
			current.matched = true
			return false
		default:
			current.mergeCluster(cluster)
		}
		return true
	})
}

// mergeCluster merges into a cluster. If the patch has a transport socket, only the socket is merged, as with istiod.
func (s *step) mergeCluster(cluster *clusterv3.Cluster) {
	socket, addition := cluster.GetTransportSocket(), s.Value.(*clusterv3.Cluster).GetTransportSocket()
	if addition == nil {
		s.merge(cluster)
		return
	}
	if matches := cluster.GetTransportSocketMatches(); len(matches) > 0 {
		i := slices.IndexFunc(matches, func(m *clusterv3.Cluster_TransportSocketMatch) bool {
			return m.GetTransportSocket().GetName() == addition.GetName()
		})
		if i < 0 {
			return
		}
		socket = matches[i].GetTransportSocket()
	}
	if !s.mergeSocket(socket, addition) {
		before := cluster.GetTransportSocket()
		s.onUndo(func() { cluster.TransportSocket = before })
		cluster.TransportSocket, s.matched = proto.CloneOf(addition), true
		s.check(func() string { return refused(cluster, s.maxProgram) })
	}
}

func (s *step) matchesCluster(cluster *clusterv3.Cluster, services []string) bool {
	match := s.Match.GetCluster()
	if match.GetName() != "" {
		return match.GetName() == cluster.GetName()
	}
	var parts [4]string // direction, port, subset, host
	if list := strings.Split(cluster.GetName(), "|"); len(list) == len(parts) {
		parts = [4]string(list)
	}
	if parts[0] != "inbound" || len(services) == 0 {
		services = []string{parts[3]}
	}
	return satisfies(match.GetSubset(), parts[2]) &&
		(match.GetService() == "" || slices.Contains(services, match.GetService())) &&
		(match.GetPortNumber() == 0 || model.RouteName(match.GetPortNumber()) == parts[1])
}

// httpManager is the name of the network filter that contains HTTP filters.
const httpManager = "envoy.filters.network.http_connection_manager"

// Listener returns a patched listener, or false if a patch removes it. Inline routes of the listener are patched, too.
func (p *Patcher) Listener(listener *listenerv3.Listener) (*listenerv3.Listener, bool) {
	return apply(p, listener, listenerPhases, (*step).listener)
}

func (s *step) listener(listener *listenerv3.Listener) (keep bool) {
	if !s.matchesListener(listener) {
		return true
	}
	isChain := func(chain *listenerv3.FilterChain) bool { return s.matchesChain(listener, chain) }
	switch s.ApplyTo {
	case networking.EnvoyFilter_LISTENER:
		if s.Operation == networking.EnvoyFilter_Patch_REMOVE {
			s.matched = true
			return false
		}
		s.flush()
		s.merge(listener)
	case networking.EnvoyFilter_LISTENER_FILTER:
		name := s.Match.GetListener().GetListenerFilter()
		editFilters(s, &listener.ListenerFilters, name, name != "" || s.Operation == networking.EnvoyFilter_Patch_MERGE)
	case networking.EnvoyFilter_FILTER_CHAIN:
		edit(s, &listener.FilterChains, false, isChain, s.mergeChain)
		if chain := listener.GetDefaultFilterChain(); chain != nil && s.Operation != networking.EnvoyFilter_Patch_ADD {
			chains := []*listenerv3.FilterChain{chain}
			if edit(s, &chains, false, isChain, s.mergeChain); len(chains) == 0 {
				s.onUndo(func() { listener.DefaultFilterChain = chain })
				listener.DefaultFilterChain = nil
			}
		}
	default:
		for _, chain := range append(slices.Clip(listener.GetFilterChains()), listener.GetDefaultFilterChain()) {
			if chain != nil && isChain(chain) {
				s.chain(chain)
			}
		}
	}
	if s.matched && (s.ApplyTo == networking.EnvoyFilter_FILTER_CHAIN ||
		s.ApplyTo == networking.EnvoyFilter_NETWORK_FILTER &&
			s.Operation == networking.EnvoyFilter_Patch_REMOVE) {
		s.check(func() string { return s.misplacedChain(listener) })
	}
	return true
}

// misplacedChain says why Envoy would refuse the filter chains of a listener after the patch. It compares an added
// chain with each other one.
func (s *step) misplacedChain(listener *listenerv3.Listener) string {
	last := len(listener.GetFilterChains()) - 1
	if s.Operation != networking.EnvoyFilter_Patch_ADD || isEmpty(listener.FilterChains[last]) {
		return duplicateMatch(listener)
	}
	matchAny := &listenerv3.FilterChainMatch{}
	for _, chain := range listener.GetFilterChains()[:last] {
		if !isEmpty(chain) && proto.Equal(cmp.Or(chain.GetFilterChainMatch(), matchAny),
			cmp.Or(listener.FilterChains[last].GetFilterChainMatch(), matchAny)) {
			return duplicateMatch(listener)
		}
	}
	return ""
}

// dropEmpty drops filter chains without filters, as istiod does.
func dropEmpty(listener *listenerv3.Listener) {
	if listener.FilterChains = slices.DeleteFunc(listener.GetFilterChains(),
		isEmpty); isEmpty(listener.GetDefaultFilterChain()) {
		listener.DefaultFilterChain = nil
	}
}

func isEmpty(chain *listenerv3.FilterChain) bool { return len(chain.GetFilters()) == 0 }

// mergeChain merges into a filter chain. If both have transport sockets of the same name, only the sockets are merged,
// as with istiod.
func (s *step) mergeChain(chain *listenerv3.FilterChain) {
	if !s.mergeSocket(chain.GetTransportSocket(), s.Value.(*listenerv3.FilterChain).GetTransportSocket()) {
		s.flush()
		s.merge(chain)
	}
}

// mergeSocket merges a transport socket of the patch into a socket of the same name, and reports whether the names
// agree.
func (s *step) mergeSocket(socket, addition *corev3.TransportSocket) (same bool) {
	if socket == nil || addition == nil || socket.GetName() != addition.GetName() {
		return false
	}
	if s.matched = true; socket.GetTypedConfig() != nil && addition.GetTypedConfig() != nil {
		s.matched = s.mergeConfig(socket.GetTypedConfig(), addition.GetTypedConfig())
	}
	return true
}

type typedFilter interface {
	namedMessage
	GetTypedConfig() *anypb.Any
}

// editFilters applies the patch to a list of filters. named reports that the patch names a filter.
func editFilters[F typedFilter](current *step, list *[]F, name string, named bool) {
	edit(current, list, named, func(filter F) bool { return !named || filter.GetName() == name }, func(filter F) {
		value := current.Value.(F)
		if current.mergeConfig(filter.GetTypedConfig(), value.GetTypedConfig()) && value.GetName() != "" &&
			current.ApplyTo != networking.EnvoyFilter_LISTENER_FILTER { // istiod does not rename them, either
			message := filter.ProtoReflect()
			field := message.Descriptor().Fields().ByName("name")
			current.saveField(message, field)
			message.Set(field, protoreflect.ValueOfString(value.GetName()))
		}
	})
}

// chain patches the filters of a filter chain, the filters of its HTTP connection managers, or their inline routes.
func (s *step) chain(chain *listenerv3.FilterChain) {
	filterMatch := s.Match.GetListener().GetFilterChain().GetFilter()
	if s.ApplyTo == networking.EnvoyFilter_NETWORK_FILTER {
		editFilters(s, &chain.Filters, filterMatch.GetName(), filterMatch != nil)
		s.check(func() string { return misplaced(chain) })
		return
	}
	for _, filter := range chain.GetFilters() {
		if filter.GetName() != httpManager || filterMatch != nil && filterMatch.GetName() != filter.GetName() {
			continue
		}
		manager, ok := s.config(filter.GetTypedConfig()).(*hcmv3.HttpConnectionManager)
		switch {
		case !ok:
		case s.ApplyTo == networking.EnvoyFilter_HTTP_FILTER:
			subFilter := filterMatch.GetSubFilter()
			editFilters(s, &manager.HttpFilters, subFilter.GetName(), subFilter != nil)
			s.check(func() string { return misplaced(manager) })
		case manager.GetRouteConfig() != nil:
			s.routes(manager.GetRouteConfig())
		}
	}
}

// isVirtual reports whether a listener hands connections on to other listeners. Ports in patches are then the ports of
// filter chains.
func isVirtual(listener *listenerv3.Listener) bool {
	return listener.GetName() == "virtualOutbound" || listener.GetName() == "virtualInbound"
}

// satisfies reports whether an actual value equals the required one. The zero value of required accepts any.
func satisfies[T comparable](required, actual T) bool {
	var anything T
	return required == anything || required == actual
}

func (s *step) matchesListener(listener *listenerv3.Listener) bool {
	match := s.Match.GetListener()
	return satisfies(match.GetName(), listener.GetName()) &&
		(s.ApplyTo != networking.EnvoyFilter_LISTENER && isVirtual(listener) ||
			satisfies(match.GetPortNumber(), listener.GetAddress().GetSocketAddress().GetPortValue()))
}

func (s *step) matchesChain(listener *listenerv3.Listener, chain *listenerv3.FilterChain) bool {
	match, chainMatch := s.Match.GetListener().GetFilterChain(), chain.GetFilterChainMatch()
	if port := chainMatch.GetDestinationPort().GetValue(); !satisfies(match.GetDestinationPort(), port) ||
		isVirtual(listener) && !satisfies(s.Match.GetListener().GetPortNumber(), port) {
		return false
	}
	for name := range strings.SplitSeq(match.GetApplicationProtocols(), ",") {
		if match.GetApplicationProtocols() != "" && !slices.Contains(chainMatch.GetApplicationProtocols(), name) {
			return false
		}
	}
	socket := cmp.Or(chain.GetTransportSocket().GetName(), "envoy.transport_sockets.raw_buffer")
	return satisfies(match.GetName(), chain.GetName()) &&
		satisfies(match.GetTransportProtocol(), chainMatch.GetTransportProtocol()) &&
		satisfies(match.GetTransportSocket(), socket) &&
		(match.GetSni() == "" || slices.Contains(chainMatch.GetServerNames(), match.GetSni()))
}

// Routes returns patched routes.
func (p *Patcher) Routes(routes *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	patched, _ := apply(p, routes, RoutePhases, (*step).routes)
	return patched
}

func (s *step) routes(routes *routev3.RouteConfiguration) (keep bool) {
	switch {
	case !s.matchesRoutes(routes):
	case s.ApplyTo == networking.EnvoyFilter_ROUTE_CONFIGURATION:
		s.merge(routes)
	case s.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST:
		if edit(s, &routes.VirtualHosts, false, s.matchesHost, nil); s.matched {
			value, _ := s.Value.(*routev3.VirtualHost)
			s.check(func() string { return duplicateDomain(routes, []*routev3.VirtualHost{value}) })
		}
	default:
		named := s.Match.GetRouteConfiguration().GetVhost().GetRoute() != nil
		for _, host := range routes.GetVirtualHosts() {
			if s.matchesHost(host) {
				edit(s, &host.Routes, named, s.matchesRoute, nil)
			}
		}
	}
	return true
}

func (s *step) matchesRoutes(routes *routev3.RouteConfiguration) bool {
	match, gateways := s.Match.GetRouteConfiguration(), s.context == networking.EnvoyFilter_GATEWAY
	port, portName, gateway := parseRouteName(routes.GetName(), gateways)
	return satisfies(match.GetName(), routes.GetName()) && satisfies(match.GetPortNumber(), port) &&
		(!gateways || satisfies(match.GetPortName(), portName) && satisfies(match.GetGateway(), gateway))
}

// parseRouteName parses the name of routes: PORT, inbound|PORT||, and with gateways http.PORT or
// https.PORT.PORTNAME.GATEWAY.NAMESPACE.
func parseRouteName(name string, gateways bool) (port uint32, portName, gateway string) {
	number := name
	switch parts := strings.Split(name, "."); {
	case gateways && parts[0] == "http" && len(parts) > 1:
		number = parts[1]
	case gateways && parts[0] == "https" && len(parts) == 5:
		number, portName, gateway = parts[1], parts[2], parts[4]+"/"+parts[3]
	case strings.HasPrefix(name, "inbound|"):
		number = strings.Split(name, "|")[1]
	}
	n, _ := strconv.ParseUint(number, 10, 32)
	return uint32(n), portName, gateway
}

func (s *step) matchesHost(host *routev3.VirtualHost) bool {
	match := s.Match.GetRouteConfiguration().GetVhost()
	return satisfies(match.GetName(), host.GetName()) &&
		(match.GetDomainName() == "" || slices.Contains(host.GetDomains(), match.GetDomainName()))
}

func (s *step) matchesRoute(route *routev3.Route) bool {
	match := s.Match.GetRouteConfiguration().GetVhost().GetRoute()
	action := match.GetAction()
	switch route.GetAction().(type) {
	case *routev3.Route_Route:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return satisfies(match.GetName(), route.GetName()) && satisfies(match.GetAction(), action) // ANY is zero
}
