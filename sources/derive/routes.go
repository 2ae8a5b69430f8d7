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

// mesh is the name by which VirtualServices refer to all sidecars.
const mesh = "mesh"

// binding is a route that is attached to a listener, or to a host of the mesh.
type binding struct {
	gateway string   // "namespace/name" of the listener's Gateway, or mesh
	hosts   []string // for which the route is there
	port    uint32   // of the mesh: the only one that is meant, if not 0
}

// bindings returns where a route is attached, ordered by gateway, and reports the parents that do not take it.
func (n node) bindings() (all []binding) {
	for _, p := range n.list("parentRefs") {
		ref := p.reference(gatewayGroup, "Gateway")
		found := n.find(ref.Kind, ref.Namespace, ref.Name)
		switch isService, isEntry := ref.is("", "Service"), ref.is(istioGroup, "ServiceEntry"); {
		case isService && n.missingService(ref.Namespace, ref.Name):
			p.report("%s does not exist: nothing is made for it", ref)
		case isService:
			all = append(all, binding{mesh, []string{n.serviceHost(ref.Namespace, ref.Name)}, p.port()})
		case !ref.is(gatewayGroup, "Gateway", "ListenerSet") && !ref.is(experimentalGroup, "XListenerSet") && !isEntry:
			p.report("kind %s of %q cannot have routes: nothing is made for it", ref.Kind, ref.group)
		case found == nil:
			p.report("%s is not known: nothing is made for it", ref)
		case isEntry:
			all = append(all, binding{mesh, n.spec(found).texts("hosts"), p.port()})
		case len(n.listeners[ref.Key]) > 0: // otherwise it is not served, which is said of the parent
			all = append(all, p.bindToListeners(ref)...)
		}
	}
	slices.SortStableFunc(all, func(a, b binding) int { return cmp.Compare(a.gateway, b.gateway) })
	return all
}

// bindToListeners attaches a route to the listeners of a parent.
func (n node) bindToListeners(parent reference) (all []binding) {
	var refusals []string
	for _, l := range n.listeners[parent.Key] {
		if port := n.port(); port != 0 && port != l.port || cmp.Or(n.text("sectionName"), l.name) != l.name {
			continue
		}
		if why := l.refuses(n); why != "" {
			refusals = append(refusals, fmt.Sprintf("listener %s: %s", l.name, why))
			continue
		}
		hosts := host.NewNames(n.hostnames())
		if n.kind == "TLSRoute" && l.hostname != "" {
			hosts = hosts.Intersection(host.NewNames([]string{l.hostname}))
		}
		b := binding{gateway: l.gateway}
		for _, h := range hosts {
			if !l.isolates(h, n.listeners[parent.Key]) {
				b.hosts = append(b.hosts, string(h))
			}
		}
		all = append(all, b)
	}
	if len(refusals) == 0 {
		refusals = []string{"it has no listener of this sectionName and port"}
	}
	if len(all) == 0 {
		n.report("%s does not take it, and nothing is made for it: %s", parent, strings.Join(refusals, "; "))
	}
	return all
}

// refuses says why a listener does not take a route; it is empty if it does.
func (l *listener) refuses(n node) string {
	hostMatches, namespaceMatches := false, false
	for _, route := range n.hostnames() {
		for _, own := range l.hosts {
			namespace, hostname, _ := strings.Cut(own, "/")
			if host.Name(hostname).Matches(host.Name(route)) {
				hostMatches = true
				namespaceMatches = namespaceMatches || namespace == "*" || namespace == n.Namespace
			}
		}
	}
	switch {
	case !hostMatches:
		return fmt.Sprintf("its hostname %q matches none of the route's", l.hostname)
	case !namespaceMatches:
		return fmt.Sprintf("it takes no routes of namespace %s", n.Namespace)
	case !slices.Contains(l.kinds, n.kind):
		return fmt.Sprintf("it takes no %s", n.kind)
	}
	return ""
}

// isolates reports whether another listener of the same port and protocol is meant for a host of a route, as its hostname is the more exact
// one.
func (l *listener) isolates(route host.Name, beside []*listener) bool {
	own := host.Name(l.hostname)
	if own != "" && (!own.IsWildCarded() || !route.Matches(own)) {
		return own.IsWildCarded()
	}
	return slices.ContainsFunc(beside, func(other *listener) bool {
		return other.port == l.port && other.protocol == l.protocol && other.hostname != l.hostname &&
			len(own) <= len(other.hostname) && route.SubsetOf(host.Name(other.hostname))
	})
}

// hostnames are those of the route of which n is a part, or "*".
func (n node) hostnames() []string {
	if hosts := n.spec(n.object).texts("hostnames"); len(hosts) > 0 && n.kind != "TCPRoute" {
		return hosts
	}
	return []string{"*"}
}

// contribution is what one object adds to the routes of one host of one gateway: their order is that of all their matches, whatever object
// they are of.
type contribution struct {
	of            *object
	host, gateway string
	routes        []*networking.HTTPRoute
}

// routes makes VirtualServices of all routes: one for each host of a gateway that HTTPRoutes and GRPCRoutes have, and one for each of each
// TLSRoute or TCPRoute.
func (d *derivation) routes() {
	byHost := make(map[string][]contribution)
	for _, o := range d.all(routeKinds...) {
		n, made := d.spec(o), 0
		bindings := n.bindings()
		if !n.has("parentRefs") || len(bindings) > 0 && !n.has("rules") {
			n.report("parentRefs or rules are missing: nothing is made of this route")
			continue
		}
		for _, b := range bindings {
			routes := n.convert(b)
			for _, h := range b.hosts {
				switch {
				case routes == nil:
				case len(routes.GetHttp()) == 0:
					routes.Hosts = []string{h}
					spec := proto.CloneOf(routes)
					for _, r := range spec.GetTls() {
						r.Match[0].SniHosts = n.sni(b, h)
					}
					kind := strings.ToLower(strings.TrimSuffix(string(o.kind), "Route"))
					d.addVirtualService(o.Namespace, fmt.Sprintf("%s-%s-%d-%s", o.Name, kind, made, generated), spec, o)
					made++
				default:
					key := b.key(o.Namespace) + "/" + h
					if all := byHost[key]; len(all) == 0 || all[len(all)-1].of != o { // else it names the listener twice
						byHost[key] = append(all, contribution{o, h, b.gateway, routes.GetHttp()})
					}
				}
			}
		}
	}
	d.merge(byHost)
}

// key is what the routes of one host have in common that are one VirtualService.
func (b *binding) key(namespace string) string {
	key := b.gateway
	if b.gateway == mesh {
		key = namespace
	}
	if b.port != 0 {
		key += "/" + strconv.Itoa(int(b.port))
	}
	return key
}

// convert returns the rules of a route for what it is attached to, or nil if one of them is wrong.
func (n node) convert(b binding) *networking.VirtualService {
	out := &networking.VirtualService{Gateways: []string{b.gateway}}
	n.worthless = false
	for i, r := range n.list("rules") {
		switch n.kind {
		case "TLSRoute":
			match := []*networking.TLSMatchAttributes{{Port: b.port}}
			out.Tls = append(out.Tls, &networking.TLSRoute{Match: match, Route: streams(r.destinations(b))})
		case "TCPRoute":
			route := &networking.TCPRoute{Route: streams(r.destinations(b))}
			if b.port != 0 {
				route.Match = []*networking.L4MatchAttributes{{Port: b.port}}
			}
			out.Tcp = append(out.Tcp, route)
		default:
			name := cmp.Or(r.text("name"), fmt.Sprintf("%s.%s.%d", n.Namespace, n.Name, i))
			out.Http = append(out.Http, r.httpRoutes(b, &networking.HTTPRoute{Name: name})...)
		}
	}
	if n.worthless {
		return nil
	}
	return out
}

func streams(to []*networking.HTTPRouteDestination) (all []*networking.RouteDestination) {
	for _, d := range to {
		all = append(all, &networking.RouteDestination{Destination: d.GetDestination(), Weight: d.GetWeight()})
	}
	if len(all) == 0 {
		all = append(all, &networking.RouteDestination{Destination: nowhere("zero-weight")})
	}
	return all
}

// sni are the server names of a TLSRoute in the VirtualService of a host. istiod refuses others than those of the host.
func (n node) sni(b binding, h string) []string {
	names := slices.Clone(b.hosts)
	if b.gateway == mesh && n.has("hostnames") {
		names = n.texts("hostnames")
	}
	if len(names) == 1 {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool { return !host.Name(name).SubsetOf(host.Name(h)) })
}

func (d *derivation) addVirtualService(namespace, name string, spec *networking.VirtualService, of ...*object) {
	d.add(resource.VirtualService, namespace, name, map[string]string{routeSemantics: semantics}, spec, of...)
}

// merge makes a VirtualService of what there is for each host of each gateway. One that is wrong is not to take the others with it.
func (d *derivation) merge(byHost map[string][]contribution) {
	for key, all := range byHost {
		slices.SortStableFunc(all, func(a, b contribution) int { return older(a.of, b.of) })
		if len(all) > 1 && check(merged(all)) != nil {
			all = slices.DeleteFunc(all, func(c contribution) bool {
				err := check(merged([]contribution{c}))
				if err != nil {
					d.spec(c.of).get("rules").report("%v: nothing is made of this route for %s", err, key)
				}
				return err != nil
			})
		}
		var of []*object
		for _, c := range all {
			of = append(of, c.of)
		}
		if len(of) > 0 {
			d.addVirtualService(of[0].Namespace, MergedName(key), merged(all), of...)
		}
	}
}

func merged(all []contribution) *networking.VirtualService {
	spec := &networking.VirtualService{}
	for _, c := range all {
		spec.Hosts, spec.Gateways = []string{c.host}, []string{c.gateway}
		spec.Http = append(spec.Http, c.routes...)
	}
	slices.SortStableFunc(spec.GetHttp(), func(a, b *networking.HTTPRoute) int { return slices.Compare(exactness(b), exactness(a)) })
	return spec
}

// exactness is that of the match of a route, by which Gateway API has routes in order.
func exactness(r *networking.HTTPRoute) []int {
	if len(r.GetMatch()) == 0 {
		return nil
	}
	m, kind, method := r.GetMatch()[0], -1, 0
	uri := m.GetUri()
	switch uri.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		kind = 3
	case *networking.StringMatch_Prefix:
		kind = 2
	case *networking.StringMatch_Regex:
		kind = 1
	}
	if m.GetMethod() != nil {
		method = 1
	}
	length := len(uri.GetExact() + uri.GetPrefix() + uri.GetRegex())
	return []int{kind, length, method, len(m.GetHeaders()), len(m.GetQueryParams())}
}

// check says what istiod's validation has against a VirtualService.
func check(spec *networking.VirtualService) error {
	r, err := resource.New(resource.Meta{
		Key:         resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: "check"},
		Annotations: map[string]string{routeSemantics: semantics}, // with it, a Gateway may have any name
	}, spec)
	if err == nil {
		_, err = resource.Validate(r)
	}
	if all := resource.ErrorsIn(err); len(all) > 0 {
		return all[0].Err
	}
	return err
}

// MergedName is the name of the VirtualService for a host of a gateway: "namespace/gateway/host", or "namespace/host" in the mesh.
func MergedName(key string) string {
	const hash = 1 + 16
	readable := strings.ReplaceAll(strings.ReplaceAll(key, "/", "."), "*", "any")
	readable = strings.TrimRight(readable[:min(len(readable), names.MaxName-hash)], ".-")
	return readable + "-" + names.Hash(key)
}
