package derive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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

// nameLabel has the name of the Gateway of a proxy. That of Gateway API would be
// gateway.networking.k8s.io/gateway-name, but an istiod without Kubernetes crashes when a proxy with that label
// connects.
const nameLabel = "istio.io/gateway-name"

// gateways converts each listener to a Gateway, and keeps the listeners for the routes.
func (d *derivation) gateways() {
	for _, object := range append(d.objectsOf("Gateway"), d.objectsOf("ListenerSet", "XListenerSet")...) {
		node, gateway, wrong := d.spec(object), d.spec(object), ""
		if object.Kind != "Gateway" {
			gateway, wrong = node.parentGateway()
		}
		if class := gateway.text("gatewayClassName"); wrong == "" && !d.served(class) {
			wrong = fmt.Sprintf("class %q is not served", class)
		}
		if wrong != "" {
			node.report("%s: nothing is made of this %s and its routes", wrong, object.Kind)
		} else if t := gateway.target(); t != nil {
			for _, l := range node.list("listeners") {
				l.bind(t)
			}
		}
	}
}

// parentGateway returns the Gateway that takes a ListenerSet, or an error text.
func (n node) parentGateway() (gateway node, wrong string) {
	reference, wrong := n.get("parentRef").refer("Gateway")
	if wrong == "" {
		gateway = n.spec(n.placed[reference].object)
		if !allows(gateway.get("allowedListeners").get("namespaces").matching("None"), n.Namespace) {
			wrong = fmt.Sprintf("spec.allowedListeners of %s does not allow it", reference)
		}
	}
	return gateway, wrong
}

// served reports whether the Gateways of a class are served.
func (d *derivation) served(class string) bool {
	if len(d.opts.GatewayClasses) > 0 {
		return slices.Contains(d.opts.GatewayClasses, class)
	}
	if o := d.find("GatewayClass", "", class); o != nil {
		return d.spec(o).text("controllerName") == "istio.io/gateway-controller"
	}
	return class == "istio"
}

// target selects the workloads of a Gateway. If there is an annotation, istiod selects the workloads of the Services
// that it names. Otherwise, and for Envoys of tributary, labels select them.
type target struct {
	gateway     node
	annotations map[string]string
	selector    map[string]string
}

// target returns the target of the listeners of a Gateway or of its ListenerSet. Without one, it reports that and
// returns nil.
func (n node) target() *target {
	target := &target{n, map[string]string{gatewaySemantics: semantics}, map[string]string{nameLabel: n.Name}}
	deployment := n.Name + "-" + n.text("gatewayClassName") // deployed by an istiod in the cluster
	addresses := n.list("addresses")
	isDeployed := len(addresses) == 0 || len(addresses) == 1 &&
		cmp.Or(addresses[0].text("type"), "IPAddress") == "IPAddress"
	var hosts []string
	for _, a := range addresses {
		if host := a.text("value"); cmp.Or(a.text("type"), "Hostname") != "Hostname" {
			continue
		} else if strings.Contains(host, ".") {
			hosts = append(hosts, host)
		} else {
			hosts = append(hosts, n.serviceHost(n.Namespace, host))
		}
	}
	switch {
	case isDeployed && !n.opts.AllServices:
		return target
	case isDeployed:
		hosts = []string{n.serviceHost(n.Namespace, cmp.Or(n.Annotations[annotation.GatewayNameOverride.Name], deployment))}
	case len(hosts) == 0:
		n.get("addresses").reportUnserved("there is no hostname: nothing is made of this Gateway and its routes")
		return nil
	}
	service := strings.TrimSuffix(hosts[0], "."+n.Namespace+".svc."+n.opts.DomainSuffix)
	if s := n.find("Service", n.Namespace, service); s != nil {
		selector, _ := n.spec(s).raw("selector").(map[string]any)
		if len(selector) > 0 {
			clear(target.selector)
		}
		for label, value := range selector {
			target.selector[label], _ = value.(string)
		}
	}
	target.annotations[gatewayService], target.annotations[serviceAccount] = strings.Join(hosts, ","), ""
	if isDeployed { // istiod requires the account of its deployment
		target.annotations[serviceAccount] = cmp.Or(n.Annotations[annotation.GatewayServiceAccount.Name], deployment)
	}
	return target
}

// listener has the properties of a listener that its routes need.
type listener struct {
	name, protocol, hostname string
	port                     uint32
	gateway                  string          // "namespace/name" of the derived Gateway
	kinds                    []resource.Kind // of routes
	namespaces               []string        // of routes
	terminates               bool            // TLS of connections
}

// routesOf has the kinds of routes that listeners take, by protocol and, if it is not the default one, mode.
var routesOf = map[string][]resource.Kind{
	"HTTP": {"HTTPRoute", "GRPCRoute"}, "HTTPS": {"HTTPRoute", "GRPCRoute"}, "TCP": {"TCPRoute"},
	"TLS":             {"TCPRoute", "TLSRoute"},
	"TLS Passthrough": {"TLSRoute"},
}

// conflicts reports whether a Gateway cannot have both listeners: they share the port, and the hostname unless one is
// TCP.
func (l *listener) conflicts(earlier *listener) bool {
	isTCP := l.protocol == "TCP" || earlier.protocol == "TCP"
	return l.port == earlier.port && (isTCP || cmp.Or(l.hostname, "*") == cmp.Or(earlier.hostname, "*"))
}

// bind converts a listener of a Gateway or ListenerSet to a Gateway, and keeps it for routes.
func (n node) bind(target *target) {
	listener := &listener{name: n.text("name"), protocol: n.text("protocol"), hostname: n.text("hostname"), port: n.port()}
	allowed := n.get("allowedRoutes")
	kinds, taken := allowed.list("kinds"), routesOf[listener.protocol]
	if ofMode := routesOf[listener.protocol+" "+n.get("tls").text("mode")]; ofMode != nil {
		taken = ofMode
	} else {
		listener.terminates = listener.protocol == "TLS"
	}
	listener.kinds = slices.DeleteFunc(slices.Clone(taken), func(kind resource.Kind) bool {
		isKind := func(k node) bool { ref, _ := k.refer(routeKinds...); return ref.Kind == kind }
		return len(kinds) > 0 && !slices.ContainsFunc(kinds, isKind)
	})
	if listener.namespaces = allowed.get("namespaces").matching("Same"); len(listener.namespaces) == 0 {
		allowed.report("no namespace matches: this listener has no routes")
		listener.namespaces = []string{"~"}
	}
	// istiod puts the Gateway into its own namespace, with an internal annotation for that of its workloads.
	origin := n.Name
	if target.gateway.Namespace != n.Namespace {
		origin = n.Namespace + "." + n.Name
	}
	key := resource.Key{
		Kind: resource.Gateway, Namespace: target.gateway.Namespace,
		Name: derivedName(origin, "-"+generated+"-"+listener.name),
	}
	listener.gateway = key.FullName()
	settings, wrong := n.get("tls").serverTLS(listener.port)
	if listener.protocol == "HTTPS" && settings != nil {
		wrong = cmp.Or(wrong, target.gateway.get("tls").get("frontend").verifyClients(listener.port, settings))
	}
	gateway := target.gateway.Key
	conflict := slices.IndexFunc(n.accepted[gateway], listener.conflicts)
	if conflict < 0 {
		n.accepted[gateway] = append(n.accepted[gateway], listener)
	}
	switch {
	case conflict >= 0:
		wrong = fmt.Sprintf("it conflicts with the listener of Gateway %s, which has the same port",
			n.accepted[gateway][conflict].gateway)
	case n.resources[key] != nil:
		wrong = fmt.Sprintf("another listener's Gateway has the name %s already", listener.gateway)
	case slices.Contains(n.unknown, n.field+".filters"):
		wrong = "its filters are not supported, and may be a check of requests"
	case listener.port == 0 || routesOf[listener.protocol] == nil:
		wrong = fmt.Sprintf("it has no port, or protocol %q is none of HTTP, HTTPS, TLS and TCP", listener.protocol)
	}
	n.listeners[n.Key] = append(n.listeners[n.Key], listener) // in any case: no other listener gets its hostname
	if wrong != "" {
		n.reportUnserved("%s: this listener is not served", wrong)
		listener.kinds = nil
		return
	}
	server := &networking.Server{
		Port: &networking.Port{Name: "default", Number: listener.port, Protocol: listener.protocol}, Tls: settings,
	}
	for _, namespace := range listener.namespaces {
		server.Hosts = append(server.Hosts, namespace+"/"+cmp.Or(listener.hostname, "*"))
	}
	parents := slices.Compact([]*object{n.object, target.gateway.object}) // a ListenerSet and its Gateway, or the Gateway
	n.add(key, target.annotations, &networking.Gateway{Selector: target.selector, Servers: []*networking.Server{server}},
		parents...)
}

// serverTLS returns the TLS settings of a listener, or an error text. It does not read the named Secrets.
func (n node) serverTLS(port uint32) (settings *networking.ServerTLSSettings, wrong string) {
	mode, options := cmp.Or(n.text("mode"), "Terminate"), n.get("options")
	settings = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE}
	switch option := options.text("gateway.istio.io/tls-terminate-mode"); {
	case n.value == nil:
		return nil, ""
	case n.unread():
		return nil, "something in tls is not read, and may be a check of clients"
	case mode == "Passthrough":
		_, ofNetwork := n.Labels[label.TopologyNetwork.Name] // a gateway between networks only routes by SNI
		betweenNetworks := ofNetwork && cmp.Or(n.Labels[label.NetworkingGatewayPort.Name], "15443") == strconv.Itoa(int(port))
		settings.Mode = networking.ServerTLSSettings_PASSTHROUGH
		if betweenNetworks || options.text("gateway.istio.io/listener-protocol") == "auto-passthrough" {
			settings.Mode = networking.ServerTLSSettings_AUTO_PASSTHROUGH
		}
		return settings, ""
	case mode != "Terminate":
		return nil, fmt.Sprintf("tls.mode %q is neither Terminate nor Passthrough", mode)
	case option == "ISTIO_SIMPLE":
		settings.CredentialName = "builtin://"
		return settings, ""
	case option == "ISTIO_MUTUAL":
		settings.Mode = networking.ServerTLSSettings_ISTIO_MUTUAL
		return settings, ""
	case option == "MUTUAL" || option == "OPTIONAL_MUTUAL":
		settings.Mode = networking.ServerTLSSettings_TLSmode(networking.ServerTLSSettings_TLSmode_value[option])
	}
	refs := n.list("certificateRefs")
	for _, reference := range refs {
		secret, wrong := reference.refer("Secret")
		if wrong = cmp.Or(wrong, n.ungranted(secret)); wrong != "" {
			reference.reportUnserved("%s: this certificate is not served", wrong)
			continue
		}
		settings.CredentialNames = append(settings.CredentialNames, "kubernetes-gateway://"+secret.FullName())
	}
	switch names := settings.GetCredentialNames(); {
	case len(refs) > 2 || len(refs) > 0 && len(names) == 0:
		wrong = "it has more than two certificateRefs, or none that may be used"
	case len(names) == 1:
		settings.CredentialName, settings.CredentialNames = names[0], nil
	}
	return settings, wrong
}

// verifyClients adds the certificate of the authority that verifies the clients of a port, or returns an error text.
func (n node) verifyClients(port uint32, settings *networking.ServerTLSSettings) (wrong string) {
	validation := n.get("default").get("validation")
	for _, portSettings := range n.list("perPort") {
		if portSettings.port() == port {
			validation = portSettings.get("tls").get("validation")
		}
	}
	refs, mode := validation.list("caCertificateRefs"), cmp.Or(validation.text("mode"), "AllowValidOnly")
	switch {
	case n.unread():
		return "something in the Gateway's tls.frontend is not read, and may be a check of clients"
	case validation.value == nil:
		return ""
	case mode != "AllowValidOnly":
		return fmt.Sprintf("mode %q of the Gateway's tls.frontend is not supported", mode)
	case len(refs) != 1:
		return "the Gateway's tls.frontend needs one of caCertificateRefs"
	case settings.GetMode() != networking.ServerTLSSettings_SIMPLE ||
		strings.HasPrefix(settings.GetCredentialName(), "builtin:"):
		return "the Gateway's tls.frontend and the options of the listener exclude each other"
	}
	authority, wrong := refs[0].refer("ConfigMap", "Secret")
	settings.Mode, settings.CaCertCredentialName = networking.ServerTLSSettings_MUTUAL, "configmap://"+authority.FullName()
	if authority.Kind == "Secret" {
		settings.CaCertCredentialName = "kubernetes-gateway://" + authority.FullName()
	}
	return cmp.Or(wrong, n.ungranted(authority))
}

// matching returns the namespaces that n allows, in order: "*" stands for all.
func (n node) matching(byDefault string) []string {
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

// allows reports whether a namespace is in a result of matching.
func allows(matching []string, namespace string) bool {
	return slices.Contains(matching, "*") || slices.Contains(matching, namespace)
}

// selected returns the namespaces of a selector, in order; none for a missing or invalid selector. A namespace without
// a known Namespace has the label of its name. Selectors of other labels, or of their absence, do not select it.
func (n node) selected() (selected []string) {
	const nameLabel = "kubernetes.io/metadata.name" // each namespace has it
	var s *metav1.LabelSelector
	text, _ := json.Marshal(n.value) // it was JSON
	wrong := json.Unmarshal(text, &s)
	selector, err := metav1.LabelSelectorAsSelector(s)
	if wrong != nil || err != nil {
		return nil
	}
	requirements, _ := selector.Requirements()
	byName := !slices.ContainsFunc(requirements, func(r k8slabels.Requirement) bool { return r.Key() != nameLabel })
	for _, namespace := range slices.Sorted(maps.Keys(n.namespaces)) {
		labels, definition := k8slabels.Set{}, n.find("Namespace", "", namespace)
		if definition != nil {
			maps.Copy(labels, definition.Labels)
		}
		labels[nameLabel] = namespace
		if selector.Matches(labels) && (byName || definition != nil) {
			selected = append(selected, namespace)
		}
	}
	return selected
}

// grant allows the objects of a kind and namespace to refer to an object of another namespace; to all of a kind if it
// has no name.
type grant struct{ from, to resource.Key }

// readGrants reads all ReferenceGrants. A grant with a field that is not read is ignored: the field may limit it.
func (d *derivation) readGrants() {
	for _, o := range d.objectsOf("ReferenceGrant") {
		spec := d.spec(o)
		for _, f := range spec.list("from") {
			from, _ := f.refer("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "Gateway", "ListenerSet", "XListenerSet")
			for _, t := range spec.list("to") {
				if to, _ := t.refer("Service", "ServiceImport", "Secret", "ConfigMap"); f.has("kind") && t.has("kind") &&
					!spec.unread() {
					d.grants[grant{from, to}] = true
				}
			}
		}
	}
}

// ungranted returns why the object may not refer to another one, or "". References within a namespace are always
// allowed.
func (n node) ungranted(reference resource.Key) string {
	from, wanted := resource.Key{Kind: n.Kind, Namespace: n.Namespace},
		resource.Key{Kind: reference.Kind, Namespace: reference.Namespace}
	if reference.Namespace == n.Namespace || n.grants[grant{from, reference}] || n.grants[grant{from, wanted}] {
		return ""
	}
	return fmt.Sprintf("no ReferenceGrant of namespace %s lets a %s of %s refer to %s %s",
		reference.Namespace, n.Kind, n.Namespace, reference.Kind, reference.Name)
}
