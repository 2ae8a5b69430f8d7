package derive

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"istio.io/istio/pkg/config/host"
)

// parentKey names what a route can be attached to.
type parentKey struct {
	kind string
	name name
}

// mesh is the name by which VirtualServices refer to all sidecars.
const mesh = "mesh"

// binding is a route that is attached to a listener, or to a host of the mesh.
type binding struct {
	gateway  string // "namespace/name" of the listener's Gateway, or mesh
	listener *boundListener
	others   []string // hostnames of the listeners beside it, on the same port and protocol
	hosts    []string // of the mesh
	port     uint32   // of the mesh: the only one that is meant, if not 0
}

// bindings returns where a route is attached, ordered by gateway, and reports the parents that do not take it.
func (d *derivation) bindings(o *object) []binding {
	spec := o.spec.(*routeSpec)
	var all []binding
	for i := range spec.ParentRefs {
		field, ref := indexed("spec.parentRefs[%d]", i), &spec.ParentRefs[i]
		switch group, kind := ref.kindOf(gatewayGroup, "Gateway"); {
		case group == gatewayGroup && (kind == "Gateway" || kind == "ListenerSet"),
			group == experimentalGroup && kind == "XListenerSet":
			all = append(all, d.bindToListeners(o, field, kind, ref)...)
		case group == "" && kind == "Service", group == istioGroup && kind == "ServiceEntry":
			if b := d.bindToMesh(o, field, kind, ref); b != nil {
				all = append(all, *b)
			}
		default:
			d.report(o, field, "kind %s of %q cannot have routes: nothing is made for it", kind, group)
		}
	}
	slices.SortStableFunc(all, func(a, b binding) int { return cmp.Compare(a.gateway, b.gateway) })
	return all
}

func (d *derivation) bindToListeners(o *object, field, kind string, ref *parentRef) (all []binding) {
	parent := parentKey{kind, name{ref.in(o.Namespace), ref.Name}}
	listeners := d.listeners[parent]
	if len(listeners) == 0 {
		if d.find(kind, parent.name.namespace, parent.name.name) == nil {
			d.report(o, field, "%s %s/%s is not known: nothing is made for it", kind, parent.name.namespace, ref.Name)
		}
		return nil // or it is not served, which is said of the parent
	}
	var refusals []string
	for _, l := range listeners {
		if ref.Port != 0 && ref.Port != l.port || ref.SectionName != "" && ref.SectionName != l.section {
			continue
		}
		if why := l.refuses(o); why != "" {
			refusals = append(refusals, fmt.Sprintf("listener %s: %s", l.section, why))
			continue
		}
		b := binding{gateway: l.gateway, listener: l}
		for _, other := range listeners {
			if other.port == l.port && other.protocol == l.protocol && other.hostname != l.hostname {
				b.others = append(b.others, other.hostname)
			}
		}
		all = append(all, b)
	}
	if len(refusals) == 0 && len(all) == 0 {
		refusals = []string{"it has no listener of this sectionName and port"}
	}
	if len(all) == 0 {
		d.report(o, field, "%s %s/%s does not take it, and nothing is made for it: %s", kind, parent.name.namespace, ref.Name,
			strings.Join(refusals, "; "))
	}
	return all
}

// refuses says why a listener does not take a route; it is empty if it does.
func (l *boundListener) refuses(o *object) string {
	hostMatches, namespaceMatches := false, false
	for _, route := range hostsOfRoute(o) {
		for _, own := range l.hosts {
			namespace, hostname, _ := strings.Cut(own, "/")
			if host.Name(hostname).Matches(host.Name(route)) {
				hostMatches = true
				namespaceMatches = namespaceMatches || namespace == "*" || namespace == o.Namespace
			}
		}
	}
	switch {
	case !hostMatches:
		return fmt.Sprintf("its hostname %q matches none of the route's", l.hostname)
	case !namespaceMatches:
		return fmt.Sprintf("it takes no routes of namespace %s", o.Namespace)
	case !slices.Contains(l.kinds, o.kind):
		return "it takes no " + o.kind
	}
	return ""
}

// hostsOfRoute are the hostnames of a route, or "*".
func hostsOfRoute(o *object) []string {
	if hosts := o.spec.(*routeSpec).Hostnames; len(hosts) > 0 {
		return hosts
	}
	return []string{"*"}
}

// bindToMesh attaches a route to a Service or ServiceEntry, so that it is for requests to its hosts.
func (d *derivation) bindToMesh(o *object, field, kind string, ref *parentRef) *binding {
	namespace := ref.in(o.Namespace)
	b := &binding{gateway: mesh, port: ref.Port}
	if kind == "Service" {
		if d.missingService(namespace, ref.Name) {
			d.report(o, field, "Service %s/%s does not exist: nothing is made for it", namespace, ref.Name)
			return nil
		}
		b.hosts = []string{d.serviceHost(namespace, ref.Name)}
		return b
	}
	entry := d.find(kind, namespace, ref.Name)
	if entry == nil {
		d.report(o, field, "ServiceEntry %s/%s is not known: nothing is made for it", namespace, ref.Name)
		return nil
	}
	b.hosts = entry.spec.(*serviceEntrySpec).Hosts
	return b
}

// isolates reports whether another listener beside that of b is meant for a host, as its hostname is the more exact one.
func (b *binding) isolates(routeHost string) bool {
	if b.listener == nil {
		return false
	}
	route, own := host.Name(routeHost), host.Name(b.listener.hostname)
	if len(own) > 0 && !own.IsWildCarded() {
		return false
	}
	if len(own) > 0 && !route.Matches(own) {
		return true
	}
	for _, other := range b.others {
		if len(own) <= len(other) && route.SubsetOf(host.Name(other)) {
			return true
		}
	}
	return false
}
