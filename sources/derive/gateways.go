package derive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"istio.io/api/annotation"
	"istio.io/api/label"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"tributary/resource"
)

// nameLabel has the name of the Gateway of a proxy. That of Gateway API would be gateway.networking.k8s.io/gateway-name, but an istiod
// without Kubernetes crashes when a proxy with that label connects.
const nameLabel = "istio.io/gateway-name"

// gateways makes a Gateway of each listener, and notes the listeners for the routes.
func (d *derivation) gateways() {
	for _, o := range append(d.all("Gateway"), d.all("ListenerSet", "XListenerSet")...) {
		n := d.spec(o)
		gateway, ok := n.gateway()
		if class := gateway.text("gatewayClassName"); ok && !d.served(class) {
			gateway.get("gatewayClassName").report("%q is no class that is served: nothing is made of this Gateway and its routes", class)
			ok = false
		}
		if !ok {
			continue
		}
		if t := gateway.target(n); t != nil {
			for _, l := range n.list("listeners") {
				l.bind(t)
			}
		}
	}
}

// served reports whether the Gateways of a class are.
func (d *derivation) served(class string) bool {
	if len(d.opts.GatewayClasses) > 0 {
		return slices.Contains(d.opts.GatewayClasses, class)
	}
	if o := d.find("GatewayClass", "", class); o != nil {
		return d.spec(o).text("controllerName") == "istio.io/gateway-controller"
	}
	return class == "istio"
}

// gateway returns the Gateway that n is, or that takes the ListenerSet that n is. Otherwise it reports why none does.
func (n node) gateway() (gateway node, ok bool) {
	if n.kind == "Gateway" {
		return n, true
	}
	p := n.get("parentRef")
	ref := p.reference(gatewayGroup, "Gateway")
	o := n.find("Gateway", ref.Namespace, ref.Name)
	switch {
	case !ref.is(gatewayGroup, "Gateway"):
		p.report("kind %s of %q is no Gateway: nothing is made of this ListenerSet", ref.Kind, ref.group)
	case o == nil:
		p.report("%s is not known: nothing is made of this ListenerSet", ref)
	case !n.spec(o).get("allowedListeners").get("namespaces").allows(n.Namespace):
		p.report("spec.allowedListeners of %s does not allow it: nothing is made of this ListenerSet", ref)
	default:
		return n.spec(o), true
	}
	return node{}, false
}

// target says which workloads a Gateway is for. istiod selects by the annotation, if there is one: the workloads of the Services that it
// names. All others, and Envoys of ours, select by labels.
type target struct {
	namespace   string // of the Gateway
	annotations map[string]string
	selector    map[string]string
	checked     bool // clients have to have certificates, or may
}

// target returns the target of the listeners of a Gateway, or of its ListenerSet, or nil after having reported that there is none.
func (n node) target(of node) *target {
	t := &target{
		namespace: n.Namespace, annotations: map[string]string{gatewaySemantics: semantics},
		selector: map[string]string{nameLabel: n.Name}, checked: n.get("tls").has("frontend"),
	}
	deployment := n.Name + "-" + n.text("gatewayClassName") // what istiod deploys, where it runs in the cluster
	addresses := n.list("addresses")
	isDeployed := len(addresses) == 0 || len(addresses) == 1 && cmp.Or(addresses[0].text("type"), "IPAddress") == "IPAddress"
	var hosts []string
	for _, a := range addresses {
		switch kind, value := a.text("type"), a.text("value"); {
		case isDeployed:
		case kind != "Hostname" && kind != "":
			a.report("type %q is not read beside others: only Hostname is", kind)
		case strings.Contains(value, "."):
			hosts = append(hosts, value)
		default:
			hosts = append(hosts, n.serviceHost(n.Namespace, value))
		}
	}
	switch {
	case isDeployed && !n.opts.AllServices:
		return t
	case isDeployed:
		hosts = []string{n.serviceHost(n.Namespace, cmp.Or(n.Annotations[annotation.GatewayNameOverride.Name], deployment))}
	case len(hosts) == 0:
		n.get("addresses").report("there is no hostname: nothing is made of this Gateway and its routes")
		return nil
	}
	if service, ok := strings.CutSuffix(hosts[0], "."+n.Namespace+".svc."+n.opts.DomainSuffix); ok {
		if s := n.find("Service", n.Namespace, service); s != nil && len(n.spec(s).labels("selector")) > 0 {
			t.selector = n.spec(s).labels("selector")
		}
	}
	t.annotations[gatewayService], t.annotations[serviceAccount] = strings.Join(hosts, ","), ""
	if isDeployed || of.kind != "Gateway" { // istiod asks for the account of what it deploys, whether or not it deploys that for ListenerSets
		t.annotations[serviceAccount] = cmp.Or(n.Annotations[annotation.GatewayServiceAccount.Name], deployment)
	}
	return t
}

// listener is a listener as its routes see it.
type listener struct {
	name, protocol, hostname string
	port                     uint32
	gateway                  string          // "namespace/name" of the Gateway that is made of it
	kinds                    []resource.Kind // of routes
	hosts                    []string        // "namespace/host" of the routes that it takes
}

// bind makes a Gateway of a listener of a Gateway or ListenerSet, and notes it for routes.
func (n node) bind(t *target) {
	l := &listener{name: n.text("name"), protocol: n.text("protocol"), hostname: n.text("hostname"), port: n.port(), kinds: n.takenKinds()}
	valid := true
	refuse := func(at node, format string, args ...any) {
		at.report(format+": this listener is not served", args...)
		valid = false
	}
	if l.port == 0 && n.kind != "Gateway" {
		l.port = map[string]uint32{"HTTP": 80, "HTTPS": 443}[l.protocol]
	}
	if l.port == 0 {
		refuse(n.get("port"), "it is missing")
	}
	if !slices.Contains([]string{"HTTP", "HTTPS", "TLS", "TCP"}, l.protocol) {
		refuse(n.get("protocol"), "%q is none of HTTP, HTTPS, TLS and TCP", l.protocol)
	}
	if t.checked && l.protocol == "HTTPS" {
		refuse(n, "the Gateway's spec.tls.frontend is not supported, which checks clients")
	}
	tls, wrong := n.get("tls").serverTLS(l.port)
	if wrong != "" {
		refuse(n.get("tls"), "%s", wrong)
	}
	allowed := n.get("allowedRoutes").get("namespaces")
	for _, namespace := range allowed.namespaces("Same") {
		l.hosts = append(l.hosts, namespace+"/"+cmp.Or(l.hostname, "*"))
	}
	if len(l.hosts) == 0 {
		allowed.report("no namespace matches: this listener has no routes")
		l.hosts = []string{"~/" + cmp.Or(l.hostname, "*")}
	}
	// istiod has the Gateway in its own namespace, and an annotation for that of its workloads, which it takes from nobody else.
	name := n.Name + "-" + generated + "-" + l.name
	if t.namespace != n.Namespace {
		name = n.Namespace + "." + name
	}
	l.gateway = t.namespace + "/" + name
	if n.taken[l.gateway] {
		refuse(n.get("name"), "another listener's Gateway has the name %s already", l.gateway)
		l.kinds = nil // its routes must not get to the other one
	}
	n.taken[l.gateway] = true
	n.listeners[n.key()] = append(n.listeners[n.key()], l)
	if valid {
		port := &networking.Port{Name: "default", Number: l.port, Protocol: l.protocol}
		n.add(resource.Gateway, t.namespace, name, t.annotations, &networking.Gateway{
			Selector: t.selector, Servers: []*networking.Server{{Port: port, Hosts: l.hosts, Tls: tls}},
		}, n.object)
	}
}

// takenKinds are the kinds of routes that a listener takes.
func (n node) takenKinds() (kinds []resource.Kind) {
	switch protocol := n.text("protocol"); {
	case protocol == "HTTP" || protocol == "HTTPS":
		kinds = []resource.Kind{"HTTPRoute", "GRPCRoute"}
	case protocol == "TLS" && n.get("tls").text("mode") == "Passthrough":
		kinds = []resource.Kind{"TLSRoute"}
	case protocol == "TLS" || protocol == "TCP":
		kinds = []resource.Kind{"TCPRoute"}
	}
	allowed := n.get("allowedRoutes").list("kinds")
	return slices.DeleteFunc(kinds, func(kind resource.Kind) bool {
		isKind := func(k node) bool { return k.reference(gatewayGroup, "").is(gatewayGroup, kind) }
		return len(allowed) > 0 && !slices.ContainsFunc(allowed, isKind)
	})
}

// serverTLS returns the TLS settings of a listener, and what is wrong with them. Secrets are not read: they are taken as they are named.
func (n node) serverTLS(port uint32) (out *networking.ServerTLSSettings, wrong string) {
	if n.value == nil {
		return nil, ""
	}
	if n.unread() {
		return nil, "something in it is not read, and may be a check of clients"
	}
	mode, options := cmp.Or(n.text("mode"), "Terminate"), n.get("options")
	out = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE}
	switch option := options.text("gateway.istio.io/tls-terminate-mode"); {
	case mode == "Passthrough":
		_, ofNetwork := n.Labels[label.TopologyNetwork.Name] // a gateway between networks, which routes by SNI alone
		betweenNetworks := ofNetwork && cmp.Or(n.Labels[label.NetworkingGatewayPort.Name], "15443") == strconv.Itoa(int(port))
		out.Mode = networking.ServerTLSSettings_PASSTHROUGH
		if betweenNetworks || options.text("gateway.istio.io/listener-protocol") == "auto-passthrough" {
			out.Mode = networking.ServerTLSSettings_AUTO_PASSTHROUGH
		}
		return out, ""
	case mode != "Terminate":
		return nil, fmt.Sprintf("mode %q is neither Terminate nor Passthrough", mode)
	case option == "ISTIO_SIMPLE":
		out.CredentialName = "builtin://"
		return out, ""
	case option == "ISTIO_MUTUAL":
		out.Mode = networking.ServerTLSSettings_ISTIO_MUTUAL
		return out, ""
	case option == "MUTUAL":
		out.Mode = networking.ServerTLSSettings_MUTUAL
	case option == "OPTIONAL_MUTUAL":
		out.Mode = networking.ServerTLSSettings_OPTIONAL_MUTUAL
	}
	refs := n.list("certificateRefs")
	for _, ref := range refs {
		if name := ref.secret(); name != "" {
			out.CredentialNames = append(out.CredentialNames, name)
		}
	}
	switch names := out.GetCredentialNames(); {
	case len(refs) > 2:
		wrong = "it has more than two certificateRefs"
	case len(refs) > 0 && len(names) == 0:
		wrong = "it has no certificate that may be used"
	case len(names) == 1:
		out.CredentialName, out.CredentialNames = names[0], nil
	}
	return out, wrong
}

// secret returns the name of a certificate, or an empty one if it may not be used.
func (n node) secret() string {
	ref := n.reference("", "Secret")
	switch {
	case !ref.is("", "Secret"):
		n.report("kind %s of %q is no Secret: this certificate is not served", ref.Kind, ref.group)
	case !n.allowed(ref):
		n.report("%s: this certificate is not served", n.ungranted(ref))
	default:
		return "kubernetes-gateway://" + ref.Namespace + "/" + ref.Name
	}
	return ""
}

// namespaces returns the namespaces that n lets in, in order: "*" stands for all.
func (n node) namespaces(byDefault string) []string {
	switch cmp.Or(n.text("from"), byDefault) {
	case "Same":
		return []string{n.Namespace}
	case "All":
		return []string{"*"}
	case "Selector":
		return n.get("selector").selected()
	}
	return nil
}

// allows reports whether n lets in a namespace; it lets in none if it does not say which.
func (n node) allows(namespace string) bool {
	return slices.ContainsFunc(n.namespaces("None"), func(own string) bool { return own == "*" || own == namespace })
}

// selected returns the namespaces that a selector selects, in order; none if it is left out or wrong. One whose Namespace is not known is
// known if a route or a ListenerSet is in it, and has its name for a label. Since it may have others, a selector that asks for one, or
// for its absence, does not select it.
func (n node) selected() (selected []string) {
	const nameLabel = "kubernetes.io/metadata.name" // which each namespace has
	var s *metav1.LabelSelector
	text, _ := json.Marshal(n.value) // which was JSON
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	requirements, _ := selector.Requirements()
	byName := !slices.ContainsFunc(requirements, func(r k8slabels.Requirement) bool { return r.Key() != nameLabel })
	for namespace, own := range n.known {
		set := k8slabels.Merge(own, k8slabels.Set{nameLabel: namespace})
		if selector.Matches(set) && (byName || n.find("Namespace", "", namespace) != nil) {
			selected = append(selected, namespace)
		}
	}
	slices.Sort(selected)
	return selected
}

// readNamespaces notes the labels of the namespaces that are known.
func (d *derivation) readNamespaces() {
	for _, o := range d.all(append(slices.Clone(routeKinds), "ListenerSet", "XListenerSet")...) {
		d.known[o.Namespace] = nil
	}
	for _, o := range d.all("Namespace") {
		d.known[o.Name] = o.Labels
	}
}

// grant allows objects of a kind and namespace to refer to an object of another namespace; to all of a kind if it has no name.
type grant struct {
	kind      resource.Kind
	namespace string
	to        reference
}

// readGrants reads all ReferenceGrants. One of which something is not read is none: that may be what limits it.
func (d *derivation) readGrants() {
	for _, o := range d.all("ReferenceGrant") {
		spec := d.spec(o)
		for _, from := range spec.list("from") {
			kind := kindNamed(resource.Kind(from.text("kind")))
			if spec.unread() || kind == nil || kind.Group != from.text("group") {
				continue // perhaps another controller's
			}
			for _, to := range spec.list("to") {
				d.grants[grant{resource.Kind(kind.Kind), from.text("namespace"), to.reference("", "")}] = true
			}
		}
	}
}

// allowed reports whether the object may refer to another one. It always may within its namespace.
func (n node) allowed(ref reference) bool {
	all := ref
	all.Name = ""
	return ref.Namespace == n.Namespace || n.grants[grant{n.kind, n.Namespace, ref}] || n.grants[grant{n.kind, n.Namespace, all}]
}

// ungranted says that a reference is not allowed.
func (n node) ungranted(ref reference) string {
	return fmt.Sprintf("no ReferenceGrant of namespace %s lets a %s of %s refer to %s %s",
		ref.Namespace, n.kind, n.Namespace, ref.Kind, ref.Name)
}
