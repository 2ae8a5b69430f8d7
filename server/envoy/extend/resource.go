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

// Cluster returns a cluster as the patches have it, and whether there is still one. services are the hosts of an inbound cluster, whose
// name has none.
func (p *Patcher) Cluster(c *clusterv3.Cluster, services ...string) (*clusterv3.Cluster, bool) {
	return apply(p, c, ToClusters, func(s *step, c *clusterv3.Cluster) (keep bool) {
		switch {
		case !s.matchesCluster(c, services):
		case s.Operation == networking.EnvoyFilter_Patch_REMOVE:
			s.used = true
			return false
		default:
			s.mergeCluster(c)
		}
		return true
	})
}

// mergeCluster merges into a cluster. If the patch has a transport socket, it is that alone, as with istiod.
func (s *step) mergeCluster(c *clusterv3.Cluster) {
	own, with := c.GetTransportSocket(), s.Value.(*clusterv3.Cluster).GetTransportSocket()
	if with == nil {
		s.merge(c)
		return
	}
	if matches := c.GetTransportSocketMatches(); len(matches) > 0 {
		i := slices.IndexFunc(matches, func(m *clusterv3.Cluster_TransportSocketMatch) bool {
			return m.GetTransportSocket().GetName() == with.GetName()
		})
		if i < 0 {
			return
		}
		own = matches[i].GetTransportSocket()
	}
	if !s.mergeSocket(own, with) {
		before := c.GetTransportSocket()
		s.onUndo(func() { c.TransportSocket = before })
		c.TransportSocket, s.used = proto.CloneOf(with), true
		s.check(func() string { return refused(c, s.largest) })
	}
}

func (s *step) matchesCluster(c *clusterv3.Cluster, services []string) bool {
	m := s.Match.GetCluster()
	if m.GetName() != "" {
		return m.GetName() == c.GetName()
	}
	var parts [4]string // direction, port, subset, host
	if list := strings.Split(c.GetName(), "|"); len(list) == len(parts) {
		parts = [4]string(list)
	}
	if parts[0] != "inbound" || len(services) == 0 {
		services = []string{parts[3]}
	}
	return is(m.GetSubset(), parts[2]) && (m.GetService() == "" || slices.Contains(services, m.GetService())) &&
		(m.GetPortNumber() == 0 || model.RouteName(m.GetPortNumber()) == parts[1])
}

// httpManager is the name of the filter of which patches of HTTP filters are.
const httpManager = "envoy.filters.network.http_connection_manager"

// Listener returns a listener as the patches have it, and whether there is still one. Routes that are a part of the listener are patched as
// well.
func (p *Patcher) Listener(l *listenerv3.Listener) (*listenerv3.Listener, bool) {
	return apply(p, l, toListeners, (*step).listener)
}

func (s *step) listener(l *listenerv3.Listener) (keep bool) {
	if !s.matchesListener(l) {
		return true
	}
	isChain := func(c *listenerv3.FilterChain) bool { return s.matchesChain(l, c) }
	switch s.ApplyTo {
	case networking.EnvoyFilter_LISTENER:
		if s.Operation == networking.EnvoyFilter_Patch_REMOVE {
			s.used = true
			return false
		}
		s.flush()
		s.merge(l)
	case networking.EnvoyFilter_LISTENER_FILTER:
		name := s.Match.GetListener().GetListenerFilter()
		editFilters(s, &l.ListenerFilters, name, name != "" || s.Operation == networking.EnvoyFilter_Patch_MERGE)
	case networking.EnvoyFilter_FILTER_CHAIN:
		edit(s, &l.FilterChains, false, isChain, s.mergeChain)
		if c := l.GetDefaultFilterChain(); c != nil && s.Operation != networking.EnvoyFilter_Patch_ADD {
			chains := []*listenerv3.FilterChain{c}
			if edit(s, &chains, false, isChain, s.mergeChain); len(chains) == 0 {
				s.onUndo(func() { l.DefaultFilterChain = c })
				l.DefaultFilterChain = nil
			}
		}
	default:
		for _, c := range append(slices.Clip(l.GetFilterChains()), l.GetDefaultFilterChain()) {
			if c != nil && isChain(c) {
				s.chain(c)
			}
		}
	}
	if s.used && (s.ApplyTo == networking.EnvoyFilter_FILTER_CHAIN || s.ApplyTo == networking.EnvoyFilter_NETWORK_FILTER &&
		s.Operation == networking.EnvoyFilter_Patch_REMOVE) {
		s.check(func() string { return s.misplacedChain(l) })
	}
	return true
}

// misplacedChain says why Envoy would refuse the filter chains of a listener after the patch. An added chain is compared with each other.
func (s *step) misplacedChain(l *listenerv3.Listener) string {
	last := len(l.GetFilterChains()) - 1
	if s.Operation != networking.EnvoyFilter_Patch_ADD || isEmpty(l.FilterChains[last]) {
		return sameMatch(l)
	}
	none := &listenerv3.FilterChainMatch{}
	for _, c := range l.GetFilterChains()[:last] {
		if !isEmpty(c) && proto.Equal(cmp.Or(c.GetFilterChainMatch(), none), cmp.Or(l.FilterChains[last].GetFilterChainMatch(), none)) {
			return sameMatch(l)
		}
	}
	return ""
}

// dropEmpty drops filter chains without filters, as istiod does.
func dropEmpty(l *listenerv3.Listener) {
	if l.FilterChains = slices.DeleteFunc(l.GetFilterChains(), isEmpty); isEmpty(l.GetDefaultFilterChain()) {
		l.DefaultFilterChain = nil
	}
}

func isEmpty(c *listenerv3.FilterChain) bool { return len(c.GetFilters()) == 0 }

// mergeChain merges into a filter chain. If both have transport sockets of one name, only these are merged, as with istiod.
func (s *step) mergeChain(c *listenerv3.FilterChain) {
	if !s.mergeSocket(c.GetTransportSocket(), s.Value.(*listenerv3.FilterChain).GetTransportSocket()) {
		s.flush()
		s.merge(c)
	}
}

// mergeSocket merges a transport socket of the patch into one of the same name, and says whether it has that name.
func (s *step) mergeSocket(own, with *corev3.TransportSocket) (same bool) {
	if own == nil || with == nil || own.GetName() != with.GetName() {
		return false
	}
	if s.used = true; own.GetTypedConfig() != nil && with.GetTypedConfig() != nil {
		s.used = s.mergeConfig(own.GetTypedConfig(), with.GetTypedConfig())
	}
	return true
}

type filter interface {
	named
	GetTypedConfig() *anypb.Any
}

// editFilters applies the patch to a list of filters, of which it names one if named is set.
func editFilters[F filter](s *step, list *[]F, name string, named bool) {
	edit(s, list, named, func(f F) bool { return !named || f.GetName() == name }, func(f F) {
		value := s.Value.(F)
		if s.mergeConfig(f.GetTypedConfig(), value.GetTypedConfig()) && value.GetName() != "" &&
			s.ApplyTo != networking.EnvoyFilter_LISTENER_FILTER { // these are not renamed, as with istiod
			m := f.ProtoReflect()
			field := m.Descriptor().Fields().ByName("name")
			s.saveField(m, field)
			m.Set(field, protoreflect.ValueOfString(value.GetName()))
		}
	})
}

// chain patches the filters of a filter chain, or those of its HTTP connection managers, or the routes that these have.
func (s *step) chain(c *listenerv3.FilterChain) {
	wanted := s.Match.GetListener().GetFilterChain().GetFilter()
	if s.ApplyTo == networking.EnvoyFilter_NETWORK_FILTER {
		editFilters(s, &c.Filters, wanted.GetName(), wanted != nil)
		s.check(func() string { return misplaced(c) })
		return
	}
	for _, f := range c.GetFilters() {
		if f.GetName() != httpManager || wanted != nil && wanted.GetName() != f.GetName() {
			continue
		}
		m, is := s.config(f.GetTypedConfig()).(*hcmv3.HttpConnectionManager)
		switch {
		case !is:
		case s.ApplyTo == networking.EnvoyFilter_HTTP_FILTER:
			within := wanted.GetSubFilter()
			editFilters(s, &m.HttpFilters, within.GetName(), within != nil)
			s.check(func() string { return misplaced(m) })
		case m.GetRouteConfig() != nil:
			s.routes(m.GetRouteConfig())
		}
	}
}

// isVirtual says whether connections come through a listener that others are the destinations of. Ports of patches are then those of
// filter chains.
func isVirtual(l *listenerv3.Listener) bool {
	return l.GetName() == "virtualOutbound" || l.GetName() == "virtualInbound"
}

// is says whether there is what a patch wants; it wants nothing in particular if wanted is zero.
func is[T comparable](wanted, there T) bool {
	var nothing T
	return wanted == nothing || wanted == there
}

func (s *step) matchesListener(l *listenerv3.Listener) bool {
	m := s.Match.GetListener()
	return is(m.GetName(), l.GetName()) && (s.ApplyTo != networking.EnvoyFilter_LISTENER && isVirtual(l) ||
		is(m.GetPortNumber(), l.GetAddress().GetSocketAddress().GetPortValue()))
}

func (s *step) matchesChain(l *listenerv3.Listener, c *listenerv3.FilterChain) bool {
	m, has := s.Match.GetListener().GetFilterChain(), c.GetFilterChainMatch()
	if port := has.GetDestinationPort().GetValue(); !is(m.GetDestinationPort(), port) ||
		isVirtual(l) && !is(s.Match.GetListener().GetPortNumber(), port) {
		return false
	}
	for name := range strings.SplitSeq(m.GetApplicationProtocols(), ",") {
		if m.GetApplicationProtocols() != "" && !slices.Contains(has.GetApplicationProtocols(), name) {
			return false
		}
	}
	socket := cmp.Or(c.GetTransportSocket().GetName(), "envoy.transport_sockets.raw_buffer")
	return is(m.GetName(), c.GetName()) && is(m.GetTransportProtocol(), has.GetTransportProtocol()) &&
		is(m.GetTransportSocket(), socket) &&
		(m.GetSni() == "" || slices.Contains(has.GetServerNames(), m.GetSni()))
}

// Routes returns routes as the patches have them.
func (p *Patcher) Routes(r *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	now, _ := apply(p, r, ToRoutes, (*step).routes)
	return now
}

func (s *step) routes(r *routev3.RouteConfiguration) (keep bool) {
	switch {
	case !s.matchesRoutes(r):
	case s.ApplyTo == networking.EnvoyFilter_ROUTE_CONFIGURATION:
		s.merge(r)
	case s.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST:
		if edit(s, &r.VirtualHosts, false, s.matchesHost, nil); s.used {
			value, _ := s.Value.(*routev3.VirtualHost)
			s.check(func() string { return sharedDomain(r, []*routev3.VirtualHost{value}) })
		}
	default:
		named := s.Match.GetRouteConfiguration().GetVhost().GetRoute() != nil
		for _, v := range r.GetVirtualHosts() {
			if s.matchesHost(v) {
				edit(s, &v.Routes, named, s.matchesRoute, nil)
			}
		}
	}
	return true
}

func (s *step) matchesRoutes(r *routev3.RouteConfiguration) bool {
	m, gateways := s.Match.GetRouteConfiguration(), s.context == networking.EnvoyFilter_GATEWAY
	port, portName, gateway := namesOf(r.GetName(), gateways)
	return is(m.GetName(), r.GetName()) && is(m.GetPortNumber(), port) &&
		(!gateways || is(m.GetPortName(), portName) && is(m.GetGateway(), gateway))
}

// namesOf returns what the name of routes says: PORT, inbound|PORT||, and of gateways http.PORT, or https.PORT.PORTNAME.GATEWAY.NAMESPACE.
func namesOf(name string, gateways bool) (port uint32, portName, gateway string) {
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

func (s *step) matchesHost(v *routev3.VirtualHost) bool {
	m := s.Match.GetRouteConfiguration().GetVhost()
	return is(m.GetName(), v.GetName()) && (m.GetDomainName() == "" || slices.Contains(v.GetDomains(), m.GetDomainName()))
}

func (s *step) matchesRoute(r *routev3.Route) bool {
	m := s.Match.GetRouteConfiguration().GetVhost().GetRoute()
	action := m.GetAction()
	switch r.GetAction().(type) {
	case *routev3.Route_Route:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return is(m.GetName(), r.GetName()) && is(m.GetAction(), action) // ANY is zero
}
