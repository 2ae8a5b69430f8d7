package derive

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/host"

	"tributary/internal/names"
	"tributary/resource"
)

var kindsOfRoutes = []string{"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"}

// routes makes VirtualServices of all routes.
func (d *derivation) routes() {
	m := make(merger)
	for _, kind := range kindsOfRoutes {
		for _, o := range d.all(kind) {
			bindings := d.bindings(o)
			if spec := o.spec.(*routeSpec); len(spec.ParentRefs) == 0 || len(bindings) > 0 && len(spec.Rules) == 0 {
				d.report(o, "spec", "parentRefs or rules are missing: nothing is made of this route")
				continue
			}
			switch kind {
			case "HTTPRoute", "GRPCRoute":
				d.httpRoutes(o, bindings, m)
			default:
				d.streamRoutes(o, bindings)
			}
		}
	}
	d.merge(m)
}

// merger collects the routes of one host of one gateway: their order is that of all their matches, whatever object they are of.
type merger map[string][]contribution

// contribution is what one object adds.
type contribution struct {
	of            *object
	host, gateway string
	routes        []*networking.HTTPRoute
}

// httpRoutes converts an HTTPRoute or GRPCRoute.
func (d *derivation) httpRoutes(o *object, bindings []binding, m merger) {
	var converted [2][]*networking.HTTPRoute // for gateways, and for the mesh
	var done [2]bool
	for i := range bindings {
		b, set, key := &bindings[i], 0, bindings[i].gateway
		hosts := hostsOfRoute(o)
		if b.gateway == mesh {
			set, key, hosts = 1, o.Namespace, b.hosts
		}
		if !done[set] {
			converted[set], done[set] = d.httpRules(o, b.gateway == mesh), true
		}
		routes := converted[set]
		if b.port != 0 {
			routes = atPort(routes, b.port)
			key += "/" + strconv.FormatUint(uint64(b.port), 10)
		}
		if len(routes) == 0 {
			continue
		}
		for _, h := range hosts {
			all := m[key+"/"+h]
			if b.isolates(h) || len(all) > 0 && all[len(all)-1].of == o { // or it names the listener twice
				continue
			}
			m[key+"/"+h] = append(all, contribution{o, h, b.gateway, routes})
		}
	}
}

// httpRules converts all rules of a route, with one match a route. It returns none if one of them is wrong.
func (d *derivation) httpRules(o *object, inMesh bool) []*networking.HTTPRoute {
	var routes []*networking.HTTPRoute
	rules := o.spec.(*routeSpec).Rules
	for i := range rules {
		c := ruleConverter{d, o, indexed("spec.rules[%d]", i), inMesh}
		route, ok := c.httpRule(&rules[i], i)
		if !ok {
			return nil
		}
		for n := range max(1, len(rules[i].Matches)) {
			one := route
			if n > 0 {
				one = proto.CloneOf(route)
			}
			if len(rules[i].Matches) > 0 {
				condition, ok := c.match(&rules[i].Matches[n], n)
				if !ok {
					return nil
				}
				one.Match = []*networking.HTTPMatchRequest{condition}
			}
			routes = append(routes, one)
		}
	}
	return routes
}

// atPort returns routes for requests to one port.
func atPort(routes []*networking.HTTPRoute, port uint32) []*networking.HTTPRoute {
	limited := make([]*networking.HTTPRoute, len(routes))
	for i, r := range routes {
		r = proto.CloneOf(r)
		if len(r.GetMatch()) == 0 {
			r.Match = []*networking.HTTPMatchRequest{{}}
		}
		for _, m := range r.GetMatch() {
			m.Port = port
		}
		limited[i] = r
	}
	return limited
}

// merge makes a VirtualService of what there is for each host of each gateway.
func (d *derivation) merge(m merger) {
	for key, all := range m {
		slices.SortStableFunc(all, func(a, b contribution) int { return older(a.of, b.of) })
		if len(all) > 1 && check(merged(all)) != nil {
			// One that is wrong is not to take the others with it.
			all = slices.DeleteFunc(all, func(c contribution) bool {
				err := check(merged([]contribution{c}))
				if err != nil {
					d.report(c.of, "spec.rules", "%v: nothing is made of this route for %s", err, key)
				}
				return err != nil
			})
		}
		if spec, of := merged(all); len(of) > 0 {
			d.addVirtualService(of[0].Namespace, MergedName(key), spec, of...)
		}
	}
}

func merged(all []contribution) (*networking.VirtualService, []*object) {
	spec := &networking.VirtualService{}
	var of []*object
	for _, c := range all {
		spec.Hosts, spec.Gateways = []string{c.host}, []string{c.gateway}
		spec.Http = append(spec.Http, c.routes...)
		of = append(of, c.of)
	}
	sortRoutes(spec.GetHttp())
	return spec, of
}

// check says what istiod's validation has against a VirtualService.
func check(spec *networking.VirtualService, _ []*object) error {
	r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: "check"}}, spec)
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

func (d *derivation) addVirtualService(namespace, name string, spec *networking.VirtualService, of ...*object) {
	d.add(resource.VirtualService, namespace, name, map[string]string{routeSemantics: semantics}, spec, of...)
}

// streamRoutes converts a TLSRoute or TCPRoute, of which there is one VirtualService for each gateway and host.
func (d *derivation) streamRoutes(o *object, bindings []binding) {
	count := 0
	for i := range bindings {
		b := &bindings[i]
		routes := d.streamRules(o, b.gateway == mesh)
		if len(routes) == 0 {
			continue
		}
		hosts, short := []string{"*"}, "tcp"
		if o.kind == "TLSRoute" {
			hosts, short = hostsOfRoute(o), "tls"
			if b.listener != nil && b.listener.hostname != "" {
				hosts = intersect(hosts, b.listener.hostname)
			}
		}
		sni := hosts
		if b.gateway == mesh {
			hosts = b.hosts
		}
		for _, h := range hosts {
			spec := &networking.VirtualService{Hosts: []string{h}, Gateways: []string{b.gateway}}
			for _, destinations := range routes {
				if o.kind == "TCPRoute" {
					r := &networking.TCPRoute{Route: destinations}
					if b.port != 0 {
						r.Match = []*networking.L4MatchAttributes{{Port: b.port}}
					}
					spec.Tcp = append(spec.Tcp, r)
					continue
				}
				spec.Tls = append(spec.Tls, &networking.TLSRoute{
					Match: []*networking.TLSMatchAttributes{{SniHosts: sniOf(o, b, sni, h), Port: b.port}}, Route: destinations,
				})
			}
			d.addVirtualService(o.Namespace, o.Name+"-"+short+"-"+strconv.Itoa(count)+"-"+generated, spec, o)
			count++
		}
	}
}

// sniOf are the server names of a TLSRoute in the VirtualService of a host. istiod refuses others than those of the host.
func sniOf(o *object, b *binding, sni []string, h string) []string {
	if b.gateway == mesh && len(o.spec.(*routeSpec).Hostnames) == 0 {
		sni = b.hosts
	}
	if len(sni) == 1 {
		return sni
	}
	return slices.DeleteFunc(slices.Clone(sni), func(name string) bool { return !host.Name(name).SubsetOf(host.Name(h)) })
}

// intersect returns the hosts that both a list and a listener have.
func intersect(hosts []string, listener string) []string {
	var both []string
	for _, h := range host.NewNames(hosts).Intersection(host.NewNames([]string{listener})) {
		both = append(both, string(h))
	}
	return both
}

// sortRoutes puts routes into the order in which Gateway API has them matched.
func sortRoutes(routes []*networking.HTTPRoute) {
	slices.SortStableFunc(routes, func(a, b *networking.HTTPRoute) int {
		if len(a.GetMatch()) == 0 || len(b.GetMatch()) == 0 {
			return cmp.Compare(len(b.GetMatch()), len(a.GetMatch()))
		}
		m, n := a.GetMatch()[0], b.GetMatch()[0]
		rankM, lengthM := rank(m.GetUri())
		rankN, lengthN := rank(n.GetUri())
		method := func(m *networking.HTTPMatchRequest) int {
			if m.GetMethod() != nil {
				return 1
			}
			return 0
		}
		return cmp.Or(
			cmp.Compare(rankN, rankM), cmp.Compare(lengthN, lengthM), cmp.Compare(method(n), method(m)),
			cmp.Compare(len(n.GetHeaders()), len(m.GetHeaders())), cmp.Compare(len(n.GetQueryParams()), len(m.GetQueryParams())),
		)
	})
}

// rank is how exact a match of a path is, by its kind and length.
func rank(m *networking.StringMatch) (kind, length int) {
	switch m := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return 3, len(m.Exact)
	case *networking.StringMatch_Prefix:
		return 2, len(m.Prefix)
	case *networking.StringMatch_Regex:
		return 1, len(m.Regex)
	}
	return -1, 0
}
