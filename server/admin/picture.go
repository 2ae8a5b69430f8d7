package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/labels"

	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
)

const (
	maxPictureLines     = 200
	maxPictureAddresses = 5
)

// branch is a node of the picture.
type branch struct {
	text     string
	branches []*branch
}

// grow adds a branch below b.
func (b *branch) grow(format string, args ...any) *branch {
	next := &branch{text: fmt.Sprintf(format, args...)}
	b.branches = append(b.branches, next)
	return next
}

// lines draws the branch and those below it.
func (b *branch) lines() []string {
	drawn := []string{b.text}
	for i, next := range b.branches {
		first, below := "├─ ", "│  "
		if i == len(b.branches)-1 {
			first, below = "└─ ", "   "
		}
		for j, line := range next.lines() {
			if j > 0 {
				first = below
			}
			drawn = append(drawn, first+line)
		}
	}
	return drawn
}

// Picture draws the way of a request to a host: routes, destinations, subsets and endpoints. It is empty if no object
// has the host.
func (s *Server) Picture(host string) []string {
	pen := painter{server: s, snapshot: s.opts.View.Snapshot(), keys: make(map[string][]resource.Key)}
	services, routes := pen.list(host, resource.ServiceEntry), pen.list(host, resource.VirtualService)
	if len(services)+len(routes) == 0 {
		return nil
	}
	root := &branch{text: host}
	inMesh := false
	for _, object := range routes {
		spec, _ := specOf[*networking.VirtualService](object)
		gateways := spec.GetGateways()
		route := root.grow("%s", object.Key())
		if len(gateways) > 0 {
			route.text += ", at " + strings.Join(gateways, ", ")
		}
		inMesh = inMesh || len(gateways) == 0 || slices.Contains(gateways, "mesh")
		pen.routes(route, object.Key(), spec)
	}
	if !inMesh && len(services) > 0 {
		pen.services(root, host, nil)
	}
	drawn := root.lines()
	if hidden := len(drawn) - maxPictureLines; hidden > 0 {
		drawn = append(drawn[:maxPictureLines], fmt.Sprintf("… and %d lines more", hidden))
	}
	return drawn
}

// painter draws the objects of one snapshot.
type painter struct {
	server   *Server
	snapshot memstore.Snapshot
	keys     map[string][]resource.Key // of the objects that name a host
}

// list returns the objects of a kind that name a host.
func (p painter) list(host string, kind resource.Kind) (objects []*resource.Resource) {
	keys, cached := p.keys[host]
	if !cached {
		keys = p.server.SpeakOf(host)
		p.keys[host] = keys
	}
	for _, key := range keys {
		if object := p.snapshot.Get(key); object != nil && key.Kind == kind {
			objects = append(objects, object)
		}
	}
	return objects
}

func specOf[T any](object *resource.Resource) (spec T, ok bool) {
	message, err := object.Spec()
	if err != nil {
		return spec, false // the source decoded it before
	}
	spec, ok = message.(T)
	return spec, ok
}

// routes draws the routes of a VirtualService, with those of its delegates.
func (p painter) routes(parent *branch, key resource.Key, spec *networking.VirtualService) {
	for _, route := range spec.GetHttp() {
		node := parent.grow("%s", matchesText(route.GetMatch()))
		switch {
		case route.GetDelegate() != nil:
			delegate := resource.DelegateKey(route.GetDelegate(), key.Namespace)
			next := node.grow("delegate %s", delegate.FullName())
			object := p.snapshot.Get(delegate)
			if object == nil {
				next.text += ": LEADS NOWHERE, there is no such VirtualService"
			} else if rules, ok := specOf[*networking.VirtualService](object); ok && len(rules.GetHosts()) == 0 {
				p.routes(next, delegate, rules)
			}
		case route.GetRedirect() != nil:
			redirect := route.GetRedirect()
			node.grow("redirect to %s", cmp.Or(redirect.GetAuthority()+redirect.GetUri(), "another scheme or port"))
		case route.GetDirectResponse() != nil:
			node.grow("response %d", route.GetDirectResponse().GetStatus())
		}
		for _, to := range route.GetRoute() {
			p.destination(node, share(to.GetWeight(), len(route.GetRoute())), to.GetDestination(), key)
		}
	}
	for _, route := range spec.GetTls() {
		var names []string
		for _, match := range route.GetMatch() {
			names = append(names, match.GetSniHosts()...)
		}
		p.connections(parent.grow("TLS %s", strings.Join(names, ", ")), route.GetRoute(), key)
	}
	for _, route := range spec.GetTcp() {
		p.connections(parent.grow("TCP"), route.GetRoute(), key)
	}
}

func (p painter) connections(parent *branch, destinations []*networking.RouteDestination, key resource.Key) {
	for _, to := range destinations {
		p.destination(parent, share(to.GetWeight(), len(destinations)), to.GetDestination(), key)
	}
}

// share is the text about the weight of one of several destinations.
func share(weight int32, destinations int) string {
	if destinations < 2 {
		return ""
	}
	return fmt.Sprintf("%d %% to ", weight)
}

// destination draws the subset and the endpoints of a destination that an object names.
func (p painter) destination(parent *branch, share string, destination *networking.Destination, from resource.Key) {
	host := conflicts.FullHost(destination.GetHost(), from.Namespace)
	node := parent.grow("%s%s", share, host)
	if port := destination.GetPort().GetNumber(); port != 0 {
		node.text += fmt.Sprintf(":%d", port)
	}
	selector := map[string]string(nil)
	if name := destination.GetSubset(); name != "" {
		node.text += ", subset " + name
		var exists bool
		if selector, exists = p.subset(host, name); !exists {
			node.text += ": LEADS NOWHERE, no DestinationRule has the subset"
		}
	}
	p.services(node, host, selector)
}

// services draws the ServiceEntries of a host.
func (p painter) services(node *branch, host string, selector map[string]string) {
	services := p.list(host, resource.ServiceEntry)
	if len(services) == 0 {
		node.text += ": no ServiceEntry has the host"
	}
	for _, service := range services {
		node.grow("%s: %s", service.Key(), p.endpoints(service, selector))
	}
}

// subset returns the labels of a subset.
func (p painter) subset(host, name string) (selector map[string]string, exists bool) {
	for _, object := range p.list(host, resource.DestinationRule) {
		rule, _ := specOf[*networking.DestinationRule](object)
		for _, subset := range rule.GetSubsets() {
			if subset.GetName() == name {
				return subset.GetLabels(), true
			}
		}
	}
	return nil, false
}

// endpoints is the text about the endpoints of a ServiceEntry that have the labels of a subset.
func (p painter) endpoints(service *resource.Resource, selector map[string]string) string {
	spec, _ := specOf[*networking.ServiceEntry](service)
	endpoints := spec.GetEndpoints()
	if workloads := spec.GetWorkloadSelector(); workloads != nil {
		for object := range p.snapshot.List(resource.WorkloadEntry, service.Key().Namespace) {
			entry, _ := specOf[*networking.WorkloadEntry](object)
			if hasLabels(entry, workloads.GetLabels()) {
				endpoints = append(slices.Clip(endpoints), entry)
			}
		}
	} else if len(endpoints) == 0 && spec.GetResolution() == networking.ServiceEntry_NONE {
		return "requests go to the address that the caller connects to"
	} else if len(endpoints) == 0 && spec.GetResolution() != networking.ServiceEntry_STATIC {
		return "DNS resolves the host"
	}
	var addresses []string
	for _, endpoint := range endpoints {
		if hasLabels(endpoint, selector) {
			addresses = append(addresses, endpoint.GetAddress())
		}
	}
	text := words.Count(len(addresses), "endpoint", "endpoints")
	if len(selector) > 0 {
		text += fmt.Sprintf(" of %d with %s", len(endpoints), labels.Set(selector))
	}
	if len(addresses) > maxPictureAddresses {
		addresses = append(addresses[:maxPictureAddresses], "…")
	}
	if len(addresses) > 0 {
		text += ": " + strings.Join(addresses, ", ")
	}
	return text
}

func hasLabels(endpoint *networking.WorkloadEntry, selector map[string]string) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(endpoint.GetLabels()))
}

// matchesText says which requests a route takes.
func matchesText(matches []*networking.HTTPMatchRequest) string {
	var alternatives []string
	for _, match := range matches {
		var conditions []string
		addCondition := func(name string, value *networking.StringMatch) {
			switch kind := value.GetMatchType().(type) {
			case *networking.StringMatch_Exact:
				conditions = append(conditions, name+kind.Exact)
			case *networking.StringMatch_Prefix:
				conditions = append(conditions, name+kind.Prefix+"*")
			case *networking.StringMatch_Regex:
				conditions = append(conditions, name+"~"+kind.Regex)
			}
		}
		addCondition("", match.GetUri())
		addCondition("", match.GetMethod())
		addCondition("authority ", match.GetAuthority())
		for _, name := range slices.Sorted(maps.Keys(match.GetHeaders())) {
			conditions = append(conditions, "header "+name)
		}
		for _, name := range slices.Sorted(maps.Keys(match.GetQueryParams())) {
			conditions = append(conditions, "query "+name)
		}
		if match.GetPort() != 0 {
			conditions = append(conditions, fmt.Sprintf("port %d", match.GetPort()))
		}
		if source := match.GetSourceLabels(); len(source) > 0 {
			conditions = append(conditions, "from "+labels.FormatLabels(source))
		}
		alternatives = append(alternatives, cmp.Or(strings.Join(conditions, ", "), "all requests"))
	}
	return cmp.Or(strings.Join(alternatives, " or "), "all requests")
}
