package derive

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/host"

	"tributary/internal/names"
	"tributary/resource"
)

var routeKinds = []resource.Kind{"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"}

// mesh is the name of all sidecars in VirtualServices.
const mesh = "mesh"

// binding is a route that is attached to a listener, or to a host of the mesh.
type binding struct {
	gateway string   // "namespace/name" of the listener's Gateway, or mesh
	hosts   []string // of the route
	port    uint32   // of the mesh: the only port of the route, if not 0
	key     string   // the same for all routes of one VirtualService

	terminated bool // the listener ends TLS, and server names with it
	unread     bool // the parentRef has a field that is not read, which may restrict it
}

// bindings returns the bindings of a route, ordered by gateway, and reports the parents that do not take it.
func (n node) bindings() (bindings []binding) {
	for _, parent := range n.list("parentRefs") {
		previous := len(bindings)
		reference, wrong := parent.refer("Gateway", "ListenerSet", "XListenerSet", "Service", "ServiceEntry")
		binding := binding{gateway: mesh, key: n.Namespace, port: parent.port()}
		if binding.port != 0 {
			binding.key += "/" + strconv.Itoa(int(binding.port))
		}
		switch {
		case wrong != "":
			report := parent.reportUnserved
			if reference.Kind == "" { // another program may serve it
				report = parent.report
			}
			report("%s: nothing is made for it", wrong)
		case reference.Kind == "Service":
			binding.hosts = []string{n.serviceHost(reference.Namespace, reference.Name)}
			bindings = append(bindings, binding)
		case reference.Kind == "ServiceEntry":
			binding.hosts = n.spec(n.placed[reference].object).texts("hosts")
			bindings = append(bindings, binding)
		case len(n.listeners[reference]) > 0: // otherwise the parent is not served, and reported itself
			bindings = append(bindings, parent.bindToListeners(reference)...)
		}
		for i := range bindings[previous:] {
			bindings[previous+i].unread = parent.unread()
		}
	}
	slices.SortStableFunc(bindings, func(a, b binding) int { return cmp.Compare(a.gateway, b.gateway) })
	return bindings
}

// bindToListeners attaches a route to the listeners of a parent, or reports why they refuse it.
func (n node) bindToListeners(parent resource.Key) (bindings []binding) {
	var refusals []string
	hosts := host.NewNames(n.spec(n.object).texts("hostnames"))
	if len(hosts) == 0 {
		hosts = host.Names{"*"}
	}
	for _, listener := range n.listeners[parent] {
		hostname := host.Name(cmp.Or(listener.hostname, "*"))
		switch {
		case n.port() != 0 && n.port() != listener.port || cmp.Or(n.text("sectionName"), listener.name) != listener.name:
		case !slices.ContainsFunc(hosts, hostname.Matches):
			refusals = append(refusals, fmt.Sprintf("listener %s: its hostname %q matches none of the route's", listener.name,
				listener.hostname))
		case !allows(listener.namespaces, n.Namespace):
			refusals = append(refusals,
				fmt.Sprintf("listener %s: it takes no routes of namespace %s", listener.name, n.Namespace))
		case !slices.Contains(listener.kinds, n.Kind):
			refusals = append(refusals, fmt.Sprintf("listener %s: it takes no %s", listener.name, n.Kind))
		case listener.terminates && n.Kind == "TLSRoute" &&
			!slices.ContainsFunc(hosts, func(h host.Name) bool { return hostname.SubsetOf(h) }):
			refusals = append(refusals, fmt.Sprintf("listener %s: it ends TLS, and takes no TLSRoute of some of its names only",
				listener.name))
		default:
			binding, taken := binding{gateway: listener.gateway, key: listener.gateway, terminated: listener.terminates}, hosts
			if n.Kind == "TLSRoute" && listener.hostname != "" {
				taken = hosts.Intersection(host.Names{hostname})
			}
			for _, h := range taken {
				if !listener.isolates(h, n.listeners[parent]) {
					binding.hosts = append(binding.hosts, string(h))
				}
			}
			bindings = append(bindings, binding)
		}
	}
	if len(bindings) == 0 {
		why := cmp.Or(strings.Join(refusals, "; "), "it has no listener of this sectionName and port")
		n.reportUnserved("%s does not take it, and nothing is made for it: %s", parent, why)
	}
	return bindings
}

// isolates reports whether another listener of the same port and protocol has a more exact hostname for a host of a
// route.
func (l *listener) isolates(route host.Name, listeners []*listener) bool {
	hostname := host.Name(l.hostname)
	if hostname != "" && (!hostname.IsWildCarded() || !route.Matches(hostname)) {
		return hostname.IsWildCarded()
	}
	return slices.ContainsFunc(listeners, func(sibling *listener) bool {
		return sibling.port == l.port && sibling.protocol == l.protocol && sibling.hostname != l.hostname &&
			len(hostname) <= len(sibling.hostname) && route.SubsetOf(host.Name(sibling.hostname))
	})
}

// contribution has the routes of one object for one host of one gateway. The routes of all objects are ordered by their
// matches.
type contribution struct {
	object        *object
	host, gateway string
	routes        []*networking.HTTPRoute
}

// routes converts all routes: HTTPRoutes and GRPCRoutes contribute to one VirtualService for each host of a gateway,
// and each TLSRoute or TCPRoute has its own.
func (d *derivation) routes() {
	for _, object := range d.objectsOf(routeKinds...) {
		node, attached := d.spec(object), 0
		if !node.has("parentRefs") || len(node.list("rules")) == 0 {
			node.reportUnserved("parentRefs or rules are missing: nothing is made of this route")
			continue
		}
		for _, binding := range node.bindings() {
			routes := node.affordable(node.convert(binding), len(binding.hosts))
			if routes == nil {
				break
			}
			for _, hostname := range binding.hosts {
				key := binding.key + "/" + hostname
				switch contributions := d.byHost[key]; {
				// the route names the listener twice
				case len(contributions) > 0 && contributions[len(contributions)-1].object == object:
				case len(routes.GetHttp()) > 0:
					d.byHost[key] = append(contributions, contribution{object, hostname, binding.gateway, routes.GetHttp()})
				default:
					spec := proto.CloneOf(routes)
					spec.Hosts = []string{hostname}
					for _, r := range spec.GetTls() {
						r.Match[0].SniHosts = node.sni(binding, hostname)
					}
					name := derivedName(object.Name,
						fmt.Sprintf("-%s-%d-%s", strings.ToLower(string(object.Kind[:3])), attached, generated))
					key := resource.Key{Kind: resource.VirtualService, Namespace: object.Namespace, Name: name}
					d.add(key, map[string]string{routeSemantics: semantics}, spec, object)
					attached++
				}
			}
		}
	}
}

// affordable counts the memory of routes for a number of hosts. Routes beyond the limit of a namespace answer 500, so
// that no less exact route gets their requests; nil if even that is too much. The oldest routes count first.
func (n node) affordable(routes *networking.VirtualService, hosts int) *networking.VirtualService {
	spent := n.products[n.Namespace]
	fits := func(v *networking.VirtualService) bool {
		bytes, _ := resource.Products(v)
		n.products[n.Namespace] = spent + bytes*int64(hosts)
		return n.products[n.Namespace] <= resource.MaxProducts
	}
	if fits(routes) {
		return routes
	}
	n.reportUnserved("the routes of namespace %s, by host and listener, are estimated at more than %d MB of memory: "+
		"give fewer hostnames; requests of this one get 500", n.Namespace, resource.MaxProducts>>20)
	refused := &networking.VirtualService{
		Gateways: routes.GetGateways(), Http: []*networking.HTTPRoute{refusedRoute(nil)},
	}
	n.products[n.Namespace] = spent
	if len(routes.GetHttp()) > 0 && fits(refused) {
		return refused
	}
	n.products[n.Namespace] = spent
	return nil
}

// convert returns the rules of a route for a binding. Invalid rules answer 500.
func (n node) convert(binding binding) *networking.VirtualService {
	virtualService := &networking.VirtualService{Gateways: []string{binding.gateway}}
	for i, rule := range n.list("rules") {
		switch n.Kind {
		case "TLSRoute":
			destinations := streams(rule.destinations(binding, nil))
			if binding.terminated {
				virtualService.Tcp = append(virtualService.Tcp, &networking.TCPRoute{Route: destinations})
				continue
			}
			match := []*networking.TLSMatchAttributes{{Port: binding.port}}
			virtualService.Tls = append(virtualService.Tls, &networking.TLSRoute{Match: match, Route: destinations})
		case "TCPRoute":
			route := &networking.TCPRoute{Route: streams(rule.destinations(binding, nil))}
			if binding.port != 0 {
				route.Match = []*networking.L4MatchAttributes{{Port: binding.port}}
			}
			virtualService.Tcp = append(virtualService.Tcp, route)
		default:
			name := cmp.Or(rule.text("name"), fmt.Sprintf("%s.%s.%d", n.Namespace, n.Name, i))
			virtualService.Http = append(virtualService.Http, rule.httpRoutes(binding, &networking.HTTPRoute{Name: name})...)
		}
	}
	return virtualService
}

func streams(to []*networking.HTTPRouteDestination) (destinations []*networking.RouteDestination) {
	for _, destination := range to {
		destinations = append(destinations, &networking.RouteDestination{
			Destination: destination.GetDestination(),
			Weight:      destination.GetWeight(),
		})
	}
	if len(destinations) == 0 {
		destinations = append(destinations, &networking.RouteDestination{Destination: nowhere("zero-weight")})
	}
	return destinations
}

// sni returns the server names of a TLSRoute in the VirtualService of a host. istiod refuses names outside of the host.
func (n node) sni(b binding, hostname string) []string {
	names := slices.Clone(b.hosts)
	if b.gateway == mesh && n.has("hostnames") {
		names = n.texts("hostnames")
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return len(names) > 1 &&
			!host.Name(name).SubsetOf(host.Name(hostname))
	})
}

// virtualServices makes a VirtualService for each host of each gateway. An invalid contribution does not affect the
// others.
func (d *derivation) virtualServices() {
	for key, contributions := range d.byHost {
		if check(merged(contributions)) != nil {
			for i := range contributions {
				contributions[i] = d.checked(contributions[i], key)
			}
			contributions = slices.DeleteFunc(contributions, func(c contribution) bool { return len(c.routes) == 0 })
		}
		var parents []*object
		for _, c := range contributions {
			parents = append(parents, c.object)
		}
		if len(parents) == 0 {
			continue
		}
		name, annotation := MergedName(key), semantics
		if parents[0].Kind == "Ingress" { // istiod keeps the asterisk, which names of Kubernetes cannot have
			name = strings.NewReplacer("*", "any", ".", "-").Replace(contributions[0].host) + "-" + parents[0].Name + "-" +
				ofIngress
			annotation = "ingress"
		}
		vs := resource.Key{Kind: resource.VirtualService, Namespace: parents[0].Namespace, Name: name}
		d.add(vs, map[string]string{routeSemantics: annotation}, merged(contributions), parents...)
	}
}

func merged(contributions []contribution) *networking.VirtualService {
	spec := &networking.VirtualService{
		Hosts:    []string{contributions[0].host},
		Gateways: []string{contributions[0].gateway},
	}
	for _, c := range contributions {
		spec.Http = append(spec.Http, c.routes...)
	}
	byLength := contributions[0].object.Kind == "Ingress"
	slices.SortStableFunc(spec.GetHttp(), func(a, b *networking.HTTPRoute) int {
		return slices.Compare(exactness(b, byLength), exactness(a, byLength))
	})
	for i, route := range spec.GetHttp() {
		spec.Http[i] = withoutUnread(route)
	}
	return spec
}

// exactness is the rank of a route's match in the order of Gateway API: by the kind of match first. Ingresses are
// ordered by length first.
func exactness(httpRoute *networking.HTTPRoute, byLength bool) []int {
	if len(httpRoute.GetMatch()) == 0 {
		return nil
	}
	match, uri := httpRoute.GetMatch()[0], httpRoute.GetMatch()[0].GetUri()
	given := func(text string) int { return min(1, len(text)) }
	kind := 4*given(uri.GetExact()) + 2*given(uri.GetPrefix()) + given(uri.GetRegex())
	length, unread := len(uriText(match)), 0
	if match.GetHeaders()[pathCondition] != nil {
		unread = 1
	}
	if byLength {
		kind, length = length, kind
	}
	return []int{
		kind, length, unread, given(match.GetMethod().GetExact()), len(match.GetHeaders()), len(match.GetQueryParams()),
	}
}

// check returns the error of istiod's validation for a VirtualService.
func check(spec *networking.VirtualService) error {
	object, err := resource.New(resource.Meta{
		Key:         resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: "check"},
		Annotations: map[string]string{routeSemantics: semantics}, // with it, a Gateway may have any name
	}, spec)
	if err == nil {
		_, err = resource.Validate(object)
	}
	return err
}

// MergedName returns the name of the VirtualService for a host of a gateway: "namespace/gateway/host", or
// "namespace/host" in the mesh.
func MergedName(key string) string {
	return names.Hashed(strings.NewReplacer("/", ".", "*", "any").Replace(key), key, names.MaxName)
}
