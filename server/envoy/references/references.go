// Package references finds references between objects that lead nowhere, routes that no request reaches, and parts of
// objects without an effect.
package references

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/labels"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
	envoymodel "tributary/server/envoy/model"
)

// The codes: Istio's where istioctl analyze finds the same (istio.io/latest/docs/reference/config/analysis).
const (
	NotFound         = "IST0101" // ReferencedResourceNotFound
	NoAuthority      = "IST0128" // NoServerCertificateVerificationDestinationLevel
	NoPortAuthority  = "IST0129" // NoServerCertificateVerificationPortLevel
	Unreachable      = "IST0130" // VirtualServiceUnreachableRule
	HostNotInGateway = "IST0132" // VirtualServiceHostNotFoundInGateway
	SameCertificate  = "IST0138" // GatewayDuplicateCertificate
	GatewayConflict  = "IST0145" // ConflictingGateways
	UnknownHost      = "unknown-host"
	UnusedSubset     = "unused-subset"
	NoClient         = "no-client" // of Envoys
)

// Severity is the weight of a finding.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // certainly wrong
	Warning Severity = "warning" // wrong, unless a Kubernetes cluster that istiod reads has the missing object
	Note    Severity = "note"    // without effect
)

// Finding is one defect of an object.
type Finding struct {
	Key      resource.Key
	Severity Severity
	Code     string
	Message  string // begins with the path of the field
}

// Options describe the content of other sources.
type Options struct {
	// Partial says that sources are unread that may have objects of any kind, Hosts that sources are unread that only have
	// ServiceEntries. A reference to their possible content is no finding.
	Partial, Hosts bool
	// Cluster has hosts of a Kubernetes cluster count like other hosts. Without it an istiod may read them there.
	Cluster bool
}

// Find returns the findings of a state in the order of its objects, and the references that only unread sources could
// resolve.
func Find(snapshot memstore.Snapshot, options Options) (findings []Finding, unchecked []string) {
	mesh := newModel(snapshot, options)
	for _, analyze := range []func(*model){
		destinations, gateways, delegates, gatewayHosts, unreachable, subsets, ruleHosts, sidecars, gatewayConflicts,
		certificates, authorities,
	} {
		analyze(mesh)
	}
	mesh.policyTargets(snapshot)
	return mesh.result()
}

// FindMissing is Find for the references of VirtualServices that cost requests: hosts, subsets, delegates and Gateways
// that no object has.
func FindMissing(snapshot memstore.Snapshot, options Options) (findings []Finding, unchecked []string) {
	model := newModel(snapshot, options)
	destinations(model)
	gateways(model)
	delegates(model)
	return model.result()
}

type object[T any] struct {
	key     resource.Key
	spec    T
	derived bool // from an object of Gateway API or an Ingress
}

type (
	serviceEntry    = object[*networking.ServiceEntry]
	destinationRule = object[*networking.DestinationRule]
	virtualService  = object[*networking.VirtualService]
	gatewayObject   = object[*networking.Gateway]
)

// resolve returns the full name of a host in lower case, since Istio and Envoy compare hosts so. Names without a dot
// belong to the namespace of the object.
func (o object[T]) resolve(host string) string {
	host = strings.ToLower(host)
	if strings.Contains(host, ".") || host == "*" {
		return host
	}
	return host + "." + o.key.Namespace + ".svc"
}

// model is a decoded state.
type model struct {
	options  Options
	services []virtualService
	rules    []destinationRule
	gateways map[resource.Key]gatewayObject
	sidecars []object[*networking.Sidecar]
	hosts    hostIndex[serviceEntry]
	ruleOf   hostIndex[destinationRule] // by host
	findings []Finding

	unchecked []string
}

func newModel(snapshot memstore.Snapshot, options Options) *model {
	mesh := &model{options: options, gateways: make(map[resource.Key]gatewayObject)}
	mesh.services = decode[*networking.VirtualService](snapshot, resource.VirtualService)
	mesh.rules = decode[*networking.DestinationRule](snapshot, resource.DestinationRule)
	mesh.sidecars = decode[*networking.Sidecar](snapshot, resource.Sidecar)
	for _, gateway := range decode[*networking.Gateway](snapshot, resource.Gateway) {
		mesh.gateways[gateway.key] = gateway
	}
	for _, entry := range decode[*networking.ServiceEntry](snapshot, resource.ServiceEntry) {
		for _, host := range entry.spec.GetHosts() {
			mesh.hosts.add(withoutDomain(host), entry)
		}
	}
	for _, rule := range mesh.rules {
		mesh.ruleOf.add(withoutDomain(rule.resolve(rule.spec.GetHost())), rule)
	}
	return mesh
}

// decode returns the objects of a kind. Other checks report objects that cannot be decoded.
func decode[T any](snapshot memstore.Snapshot, kind resource.Kind) (objects []object[T]) {
	for r := range snapshot.List(kind, "") {
		if spec, err := r.Spec(); err == nil {
			if spec, ok := spec.(T); ok {
				objects = append(objects, object[T]{r.Key(), spec, r.Annotations()[resource.DerivedFrom] != ""})
			}
		}
	}
	return objects
}

// hostIndex finds values by the hosts that overlap a host.
type hostIndex[T any] struct {
	exact     map[string][]T
	wildcards []wildcard[T]
}

type wildcard[T any] struct {
	host  string
	value T
}

func (h *hostIndex[T]) add(host string, value T) {
	if strings.HasPrefix(host, "*") {
		h.wildcards = append(h.wildcards, wildcard[T]{host, value})
		return
	}
	if h.exact == nil {
		h.exact = make(map[string][]T)
	}
	h.exact[host] = append(h.exact[host], value)
}

func (h *hostIndex[T]) overlapping(host string) (values []T) {
	if strings.HasPrefix(host, "*") {
		for exact, matches := range h.exact {
			if overlap(exact, host) {
				values = append(values, matches...)
			}
		}
	} else {
		values = slices.Clone(h.exact[host])
	}
	for _, entry := range h.wildcards {
		if overlap(entry.host, host) {
			values = append(values, entry.value)
		}
	}
	return values
}

// isClusterHost reports whether a host is a service of a Kubernetes cluster.
func isClusterHost(host string) bool {
	return strings.HasSuffix(host, ".svc") || strings.Contains(host, ".svc.") || strings.HasSuffix(host, ".local")
}

// withoutDomain returns the name of a service of a cluster without the cluster's domain, and other hosts unchanged.
func withoutDomain(host string) string {
	host = strings.ToLower(host)
	if before, _, ok := strings.Cut(host, ".svc."); ok {
		return before + ".svc"
	}
	return host
}

func (m *model) find(key resource.Key, severity Severity, code, format string, args ...any) {
	m.findings = append(m.findings, Finding{key, severity, code, fmt.Sprintf(format, args...)})
}

func (m *model) result() (findings []Finding, unchecked []string) {
	slices.SortStableFunc(m.findings, func(a, b Finding) int { return a.Key.Compare(b.Key) })
	slices.Sort(m.unchecked)
	return m.findings, slices.Compact(m.unchecked)
}

// unread notes a reference that an unread source may resolve, and returns possible.
func (m *model) unread(possible bool, reference string) bool {
	if possible {
		m.unchecked = append(m.unchecked, reference)
	}
	return possible
}

// missing reports whether no object of a namespace, or of any if it is empty, has a host, and no unread source may have
// it.
func (m *model) missing(host, namespace string) bool {
	return !slices.ContainsFunc(m.hosts.overlapping(withoutDomain(host)), func(entry serviceEntry) bool {
		return namespace == "" || entry.key.Namespace == namespace
	}) && m.certain(host)
}

// certain reports whether neither a Kubernetes cluster that is not read nor an unread source may have a host.
func (m *model) certain(host string) bool {
	return (m.options.Cluster || !isClusterHost(host)) &&
		!m.unread(m.options.Partial || m.options.Hosts, withoutDomain(host))
}

// overlap reports whether a name matches both hosts, each of which may begin with a *.
func overlap(first, second string) bool {
	restA, anyA := strings.CutPrefix(first, "*")
	restB, anyB := strings.CutPrefix(second, "*")
	switch {
	case anyA && anyB:
		return strings.HasSuffix(restA, restB) || strings.HasSuffix(restB, restA)
	case anyA:
		return strings.HasSuffix(second, restA)
	case anyB:
		return strings.HasSuffix(first, restB)
	}
	return first == second
}

// destination is a target of requests in a VirtualService.
type destination struct {
	field        string
	host, subset string
	port         uint32 // zero if it has none
}

func destinationsOf(object virtualService) (destinations []destination) {
	addDestination := func(field string, target *networking.Destination) {
		if target.GetHost() != "" {
			destinations = append(destinations,
				destination{field, object.resolve(target.GetHost()), target.GetSubset(), target.GetPort().GetNumber()})
		}
	}
	for i, http := range object.spec.GetHttp() {
		for j, r := range http.GetRoute() {
			addDestination(fmt.Sprintf("spec.http[%d].route[%d].destination", i, j), r.GetDestination())
		}
		addDestination(fmt.Sprintf("spec.http[%d].mirror", i), http.GetMirror())
		for j, r := range http.GetMirrors() {
			addDestination(fmt.Sprintf("spec.http[%d].mirrors[%d].destination", i, j), r.GetDestination())
		}
	}
	for i, tcp := range object.spec.GetTcp() {
		for j, r := range tcp.GetRoute() {
			addDestination(fmt.Sprintf("spec.tcp[%d].route[%d].destination", i, j), r.GetDestination())
		}
	}
	for i, tls := range object.spec.GetTls() {
		for j, r := range tls.GetRoute() {
			addDestination(fmt.Sprintf("spec.tls[%d].route[%d].destination", i, j), r.GetDestination())
		}
	}
	return destinations
}

// destinations finds missing hosts, ports and subsets.
func destinations(mesh *model) {
	for _, object := range mesh.services {
		for _, destination := range destinationsOf(object) {
			if destination.host == resource.RefusedHost { // the source reports it
				continue
			}
			entries := mesh.entriesOf(object, destination)
			if destination.subset != "" {
				mesh.subset(object, destination, entries)
			}
		}
	}
}

// isAnywhere reports whether clients of a VirtualService may be in any namespace, as those of Gateways and delegates.
func isAnywhere(o virtualService) bool {
	return len(o.spec.GetGateways()) > 0 || len(o.spec.GetHosts()) == 0
}

// isClient reports whether a namespace is that of a VirtualService, or one that gets it by name.
func isClient(o virtualService, namespace string) bool {
	return namespace == o.key.Namespace || slices.Contains(o.spec.GetExportTo(), namespace)
}

// isSeen reports whether clients of a VirtualService see an object of a namespace.
func isSeen(o virtualService, namespace string, exportTo []string) bool {
	return len(exportTo) == 0 || isAnywhere(o) || slices.ContainsFunc(exportTo, func(name string) bool {
		return name == "*" || isClient(o, cmp.Or(strings.TrimPrefix(name, "."), namespace))
	})
}

// entriesOf returns the ServiceEntries of a destination. It finds a missing one, and a missing port. An entry of a
// wildcard has no cluster for the destination.
func (m *model) entriesOf(object virtualService, target destination) []serviceEntry {
	exact := m.hosts.exact[withoutDomain(target.host)]
	if strings.HasPrefix(target.host, "*") {
		exact = m.hosts.overlapping(target.host)
	}
	entries := slices.DeleteFunc(slices.Clone(exact), func(e serviceEntry) bool {
		return !isSeen(object, e.key.Namespace, e.spec.GetExportTo())
	})
	isPort := func(p *networking.ServicePort) bool { return p.GetNumber() == target.port }
	hasPort := func(e serviceEntry) bool { return slices.ContainsFunc(e.spec.GetPorts(), isPort) }
	switch {
	case len(entries) > 0 && (target.port == 0 || slices.ContainsFunc(entries, hasPort)) || !m.certain(target.host):
	case len(exact) == 0:
		m.find(object.key, Warning, NotFound, "%s.host: no ServiceEntry has the host %s: add one, or correct the host",
			target.field, target.host)
	case len(entries) == 0:
		m.find(object.key, Warning, NotFound, "%s.host: %s is not exported to namespace %s: export it, or correct the host",
			target.field, exact[0].key, object.key.Namespace)
	default:
		m.find(object.key, Warning, NotFound, "%s.port: %s has no port %d: add it there, or correct the number",
			target.field, entries[0].key, target.port)
	}
	return entries
}

// subset finds a subset that no DestinationRule has that applies to a host at clients of a VirtualService.
func (m *model) subset(object virtualService, target destination, entries []serviceEntry) {
	rules := slices.DeleteFunc(m.ruleOf.overlapping(withoutDomain(target.host)), func(rule destinationRule) bool {
		namespace := rule.key.Namespace
		isNear := isAnywhere(object) || len(entries) == 0 || namespace == envoymodel.RootNamespace ||
			isClient(object, namespace) ||
			slices.ContainsFunc(entries, func(entry serviceEntry) bool { return entry.key.Namespace == namespace })
		return !isNear || !isSeen(object, namespace, rule.spec.GetExportTo())
	})
	isExact := func(rule destinationRule) bool { return !strings.HasPrefix(rule.spec.GetHost(), "*") }
	defined := slices.ContainsFunc(rules, func(rule destinationRule) bool {
		shadows := func(r destinationRule) bool { return isExact(r) && r.key.Namespace == rule.key.Namespace }
		return (isExact(rule) || !slices.ContainsFunc(rules, shadows)) &&
			slices.ContainsFunc(rule.spec.GetSubsets(), func(s *networking.Subset) bool { return s.GetName() == target.subset })
	})
	specific := slices.IndexFunc(rules, isExact)
	switch {
	case defined, m.unread(m.options.Partial, fmt.Sprintf("subset %s of %s", target.subset, target.host)):
	case specific >= 0:
		m.find(object.key, Error, NotFound, "%s.subset: %s has no subset %q of %s: add it there, or correct the name",
			target.field, rules[specific].key, target.subset, target.host)
	default:
		m.find(object.key, Warning, NotFound,
			"%s.subset: no DestinationRule of %s for clients in %s has subsets: add one that defines %q",
			target.field, target.host, object.key.Namespace, target.subset)
	}
}

// gatewayKey returns the key of a Gateway that an object names.
func gatewayKey(o virtualService, name string) resource.Key {
	namespace, short, _ := strings.Cut(envoymodel.WholeGateway(name, o.key.Namespace), "/")
	return resource.Key{Kind: resource.Gateway, Namespace: namespace, Name: short}
}

// gateways finds missing Gateways.
func gateways(mesh *model) {
	for _, object := range mesh.services {
		for i, name := range object.spec.GetGateways() {
			key := gatewayKey(object, name)
			if _, exists := mesh.gateways[key]; exists || name == "mesh" || mesh.unread(mesh.options.Partial, key.String()) {
				continue
			}
			mesh.find(object.key, Warning, NotFound, "spec.gateways[%d]: there is no %s: add it, or correct the name", i, key)
		}
	}
}

// delegates finds missing VirtualServices that others delegate routes to.
func delegates(mesh *model) {
	exists := make(map[resource.Key]bool, len(mesh.services))
	for _, o := range mesh.services {
		exists[o.key] = true
	}
	for _, object := range mesh.services {
		for i, http := range object.spec.GetHttp() {
			if http.GetDelegate() == nil {
				continue
			}
			key := resource.Key{
				Kind:      resource.VirtualService,
				Namespace: cmp.Or(http.GetDelegate().GetNamespace(), object.key.Namespace), Name: http.GetDelegate().GetName(),
			}
			if !exists[key] && !mesh.unread(mesh.options.Partial, key.String()) {
				mesh.find(object.key, Warning, NotFound,
					"spec.http[%d].delegate: there is no %s: add it, or correct the name", i, key)
			}
		}
	}
}

// gatewayHosts finds Gateways that have no host of a VirtualService, and hosts that none of its Gateways has.
func gatewayHosts(mesh *model) {
	for _, object := range mesh.services {
		var named []gatewayObject
		for _, name := range object.spec.GetGateways() {
			if gateway, exists := mesh.gateways[gatewayKey(object, name)]; exists &&
				!object.derived { // a listener need not have all
				named = append(named, gateway)
			}
		}
		elsewhere := slices.Contains(object.spec.GetGateways(), "mesh") ||
			mesh.options.Partial && len(named) < len(object.spec.GetGateways())
		for _, gateway := range named {
			serves := slices.ContainsFunc(object.spec.GetHosts(),
				func(host string) bool { return hasHost(gateway, object, host) })
			for i, host := range object.spec.GetHosts() {
				offers := func(gateway gatewayObject) bool { return hasHost(gateway, object, host) }
				if !serves || !elsewhere && !slices.ContainsFunc(named, offers) {
					mesh.find(object.key, Warning, HostNotInGateway,
						"spec.hosts[%d]: no server of %s has the host %s for this namespace: add it there, or remove it here",
						i, gateway.key, host)
				}
			}
		}
	}
}

// hasHost reports whether a server of a Gateway has a host of a VirtualService.
func hasHost(gateway gatewayObject, object virtualService, host string) bool {
	return slices.ContainsFunc(gateway.spec.GetServers(), func(s *networking.Server) bool {
		return slices.ContainsFunc(s.GetHosts(), func(offered string) bool {
			namespace, offered := splitHost(strings.ToLower(offered))
			return (namespace == "*" || namespace == object.key.Namespace ||
				namespace == "." && gateway.key.Namespace == object.key.Namespace) && overlap(offered, object.resolve(host))
		})
	})
}

// splitHost returns the namespace and the host of namespace/host. A host alone has the namespace *.
func splitHost(text string) (namespace, host string) {
	namespace, host, ok := strings.Cut(text, "/")
	if !ok {
		return "*", text
	}
	return namespace, host
}

// unreachable finds routes behind one that takes all requests.
func unreachable(mesh *model) {
	for _, object := range mesh.services {
		mesh.behind(object.key, "http", len(object.spec.GetHttp()), func(i int) bool {
			matches := object.spec.GetHttp()[i].GetMatch()
			return len(matches) == 0 || slices.ContainsFunc(matches, takesAll)
		})
		mesh.behind(object.key, "tcp", len(object.spec.GetTcp()),
			func(i int) bool { return len(object.spec.GetTcp()[i].GetMatch()) == 0 })
	}
}

// takesAll reports whether a match has nothing but a name, or the prefix / of all paths.
func takesAll(match *networking.HTTPMatchRequest) bool {
	rest := match.DeepCopy()
	rest.Name, rest.StatPrefix, rest.IgnoreUriCase = "", "", false
	if rest.GetUri().GetPrefix() == "/" {
		rest.Uri = nil
	}
	return rest.String() == (&networking.HTTPMatchRequest{}).String()
}

func (m *model) behind(key resource.Key, list string, count int, takes func(i int) bool) {
	for i := range count - 1 {
		if takes(i) {
			for j := i + 1; j < count; j++ {
				m.find(key, Warning, Unreachable,
					"spec.%s[%d]: no request gets here, since spec.%s[%d] takes all: move it before that one, or remove it",
					list, j, list, i)
			}
			return
		}
	}
}

// subsets finds unused subsets of hosts that VirtualServices route to.
func subsets(mesh *model) {
	used, routed := make(map[string]bool), make(map[string]bool)
	for _, object := range mesh.services {
		for _, d := range destinationsOf(object) {
			host := withoutDomain(d.host)
			used[host+"|"+d.subset], routed[host] = true, true
		}
	}
	for _, rule := range mesh.rules {
		host := withoutDomain(rule.resolve(rule.spec.GetHost()))
		if !routed[host] || mesh.options.Partial {
			continue
		}
		for i, s := range rule.spec.GetSubsets() {
			if !used[host+"|"+s.GetName()] {
				mesh.find(rule.key, Note, UnusedSubset, "spec.subsets[%d]: no VirtualService routes to the subset %q",
					i, s.GetName())
			}
		}
	}
}

// ruleHosts finds DestinationRules of missing hosts.
func ruleHosts(m *model) {
	for _, rule := range m.rules {
		if host := rule.resolve(rule.spec.GetHost()); m.missing(host, "") {
			m.find(rule.key, Warning, UnknownHost,
				"spec.host: no ServiceEntry has the host %s: add one, or correct the host", host)
		}
	}
}

// sidecars finds egress hosts without a match.
func sidecars(mesh *model) {
	for _, object := range mesh.sidecars {
		for i, egress := range object.spec.GetEgress() {
			for j, text := range egress.GetHosts() {
				namespace, host := splitHost(text)
				switch {
				case strings.HasPrefix(namespace, "~"): // none, or an exclusion
					continue
				case namespace == "*":
					namespace = ""
				case namespace == ".":
					namespace = object.key.Namespace
				}
				if !strings.HasPrefix(host, "*") && mesh.missing(host, namespace) {
					mesh.find(object.key, Warning, UnknownHost,
						"spec.egress[%d].hosts[%d]: no ServiceEntry matches %s: correct or remove it", i, j, text)
				}
			}
		}
	}
}

// policyTargets finds policies with references that mean no client. An unread source may have the origin of a Gateway.
func (m *model) policyTargets(snapshot memstore.Snapshot) {
	mesh := index.NewMesh()
	kinds := []resource.Kind{
		resource.AuthorizationPolicy, resource.RequestAuthentication, resource.WasmPlugin, resource.EnvoyFilter,
		resource.Telemetry,
	}
	for _, kind := range append(kinds, resource.Gateway) {
		for r := range snapshot.List(kind, "") {
			_ = mesh.Set(r.Key(), r) // other checks report objects that cannot be decoded
		}
	}
	for _, kind := range kinds {
		for r := range snapshot.List(kind, "") {
			why := mesh.WhyUnattached(r.Key(), nil)
			if why != "" && !m.unread(m.options.Partial, "the target of "+r.Key().String()) {
				m.find(r.Key(), Warning, NoClient, "spec.targetRefs: %s", why)
			}
		}
	}
}

// gatewayConflicts finds Gateways of the same workloads that have one host on one port.
func gatewayConflicts(mesh *model) {
	first := make(claims)
	for _, key := range slices.SortedFunc(maps.Keys(mesh.gateways), resource.Key.Compare) {
		gateway := mesh.gateways[key]
		for i, server := range gateway.spec.GetServers() {
			for j, host := range server.GetHosts() {
				claim := fmt.Sprint(server.GetBind(), " ", server.GetPort().GetNumber(), " ", strings.ToLower(host))
				if earlier := first.take(claim, gateway); earlier != key {
					mesh.find(key, Warning, GatewayConflict,
						"spec.servers[%d].hosts[%d]: %s has %s on port %d of the same workloads: remove it from one of them",
						i, j, earlier, host, server.GetPort().GetNumber())
				}
			}
		}
	}
}

// claims are the Gateways that claim something.
type claims map[string][]gatewayObject

// take returns the first Gateway with a claim that selects the same workloads as a Gateway, or a part of them, or more.
func (c claims) take(claim string, gateway gatewayObject) (first resource.Key) {
	b := labels.Set(gateway.spec.GetSelector())
	for _, earlier := range c[claim] {
		if a := labels.Set(earlier.spec.GetSelector()); a.AsSelector().Matches(b) || b.AsSelector().Matches(a) {
			return earlier.key
		}
	}
	c[claim] = append(c[claim], gateway)
	return gateway.key
}
