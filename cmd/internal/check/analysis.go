package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
)

// The codes: Istio's where istioctl analyze finds the same (istio.io/latest/docs/reference/config/analysis).
const (
	NotFound         = "IST0101" // ReferencedResourceNotFound
	ManySidecars     = "IST0111" // MultipleSidecarsWithoutWorkloadSelectors
	Unreachable      = "IST0130" // VirtualServiceUnreachableRule
	HostNotInGateway = "IST0132" // VirtualServiceHostNotFoundInGateway
	SameCertificate  = "IST0138" // GatewayDuplicateCertificate
	GatewayConflict  = "IST0145" // ConflictingGateways
	UnknownHost      = "unknown-host"
	UnusedSubset     = "unused-subset"
	NoClient         = "no-client" // of Envoys
)

// Reference is one thing that was found in an object.
type Reference struct {
	Key      resource.Key
	Severity Severity // Note: it has no effect. Warning: it is wrong, unless a Kubernetes cluster that istiod reads has what is missing.
	Code     string
	Message  string // begins with the path of the field
}

// AnalysisOptions say what is known besides the objects.
type AnalysisOptions struct {
	// Partial says that sources were not read that may have objects of any kind, Hosts that sources were not read that have only
	// ServiceEntries. A reference to what they may have is no finding.
	Partial, Hosts bool
}

// FindReferences returns what is wrong in a state, in order of object, and what objects refer to that only sources may have that were not
// read.
func FindReferences(s memstore.Snapshot, options AnalysisOptions) (found []Reference, unchecked []string) {
	m := modelOf(s, options)
	for _, analyze := range []func(*model){
		destinations, gateways, unreachable, subsets, ruleHosts, sidecars, gatewayConflicts, certificates,
	} {
		analyze(m)
	}
	m.policyTargets(s)
	slices.SortStableFunc(m.findings, func(a, b Reference) int { return a.Key.Compare(b.Key) })
	slices.Sort(m.unchecked)
	return m.findings, slices.Compact(m.unchecked)
}

type object[T any] struct {
	key  resource.Key
	spec T
}

// resolve returns a host in full and in lower case, in which Istio and Envoy compare hosts. Names without a dot are of the namespace of the object that has them.
func (o object[T]) resolve(host string) string {
	host = strings.ToLower(host)
	if strings.Contains(host, ".") || host == "*" {
		return host
	}
	return host + "." + o.key.Namespace + ".svc"
}

// model is a state, decoded.
type model struct {
	options  AnalysisOptions
	services []object[*networking.VirtualService]
	rules    []object[*networking.DestinationRule]
	gateways []object[*networking.Gateway]
	sidecars []object[*networking.Sidecar]
	hosts    map[string]map[string]bool // of ServiceEntries and, of those of a cluster, without the domain: their namespaces
	findings []Reference

	unchecked []string
}

func modelOf(s memstore.Snapshot, options AnalysisOptions) *model {
	m := &model{options: options, hosts: make(map[string]map[string]bool)}
	m.services = decode[*networking.VirtualService](s, resource.VirtualService)
	m.rules = decode[*networking.DestinationRule](s, resource.DestinationRule)
	m.gateways = decode[*networking.Gateway](s, resource.Gateway)
	m.sidecars = decode[*networking.Sidecar](s, resource.Sidecar)
	for _, entry := range decode[*networking.ServiceEntry](s, resource.ServiceEntry) {
		for _, host := range entry.spec.GetHosts() {
			host = strings.ToLower(host)
			for _, name := range []string{host, withoutDomain(host)} {
				if m.hosts[name] == nil {
					m.hosts[name] = make(map[string]bool)
				}
				m.hosts[name][entry.key.Namespace] = true
			}
		}
	}
	return m
}

// decode returns the objects of a kind. What cannot be decoded was found by others.
func decode[T any](s memstore.Snapshot, kind resource.Kind) (all []object[T]) {
	for r := range s.List(kind, "") {
		if spec, err := r.Spec(); err == nil {
			if spec, ok := spec.(T); ok {
				all = append(all, object[T]{r.Key(), spec})
			}
		}
	}
	return all
}

// withoutDomain returns the name of a service of a cluster without the domain of that, and other hosts as they are.
func withoutDomain(host string) string {
	if before, _, ok := strings.Cut(host, ".svc."); ok {
		return before + ".svc"
	}
	return host
}

func (m *model) find(key resource.Key, severity Severity, code, format string, args ...any) {
	m.findings = append(m.findings, Reference{key, severity, code, fmt.Sprintf(format, args...)})
}

// unread reports whether a source that was not read may have what an object refers to, and notes that.
func (m *model) unread(may bool, what string) bool {
	if may {
		m.unchecked = append(m.unchecked, what)
	}
	return may
}

// nowhere reports whether no object has a host, of a namespace unless that is empty, and nothing that was not read may have it.
func (m *model) nowhere(host, namespace string) bool {
	if ofCluster := strings.HasSuffix(host, ".svc") || strings.Contains(host, ".svc.") || strings.HasSuffix(host, ".local"); ofCluster {
		return false
	}
	host = withoutDomain(strings.ToLower(host))
	for known, namespaces := range m.hosts {
		if (namespace == "" || namespaces[namespace]) && overlap(known, host) {
			return false
		}
	}
	return !m.unread(m.options.Partial || m.options.Hosts, host)
}

// overlap reports whether some name is matched by both hosts, each of which may begin with a *.
func overlap(a, b string) bool {
	restA, anyA := strings.CutPrefix(a, "*")
	restB, anyB := strings.CutPrefix(b, "*")
	switch {
	case anyA && anyB:
		return strings.HasSuffix(restA, restB) || strings.HasSuffix(restB, restA)
	case anyA:
		return strings.HasSuffix(b, restA)
	case anyB:
		return strings.HasSuffix(a, restB)
	}
	return a == b
}

// destination is where a VirtualService sends requests to.
type destination struct {
	field        string
	host, subset string
}

func destinationsOf(o object[*networking.VirtualService]) (all []destination) {
	add := func(field string, d *networking.Destination) {
		if d.GetHost() != "" {
			all = append(all, destination{field, o.resolve(d.GetHost()), d.GetSubset()})
		}
	}
	for i, http := range o.spec.GetHttp() {
		for j, r := range http.GetRoute() {
			add(fmt.Sprintf("spec.http[%d].route[%d].destination", i, j), r.GetDestination())
		}
		add(fmt.Sprintf("spec.http[%d].mirror", i), http.GetMirror())
		for j, r := range http.GetMirrors() {
			add(fmt.Sprintf("spec.http[%d].mirrors[%d].destination", i, j), r.GetDestination())
		}
	}
	for i, tcp := range o.spec.GetTcp() {
		for j, r := range tcp.GetRoute() {
			add(fmt.Sprintf("spec.tcp[%d].route[%d].destination", i, j), r.GetDestination())
		}
	}
	for i, tls := range o.spec.GetTls() {
		for j, r := range tls.GetRoute() {
			add(fmt.Sprintf("spec.tls[%d].route[%d].destination", i, j), r.GetDestination())
		}
	}
	return all
}

func (m *model) rulesOf(host string) (all []object[*networking.DestinationRule]) {
	for _, rule := range m.rules {
		if of := withoutDomain(rule.resolve(rule.spec.GetHost())); overlap(of, withoutDomain(host)) {
			all = append(all, rule)
		}
	}
	return all
}

// destinations finds hosts and subsets that are nowhere.
func destinations(m *model) {
	for _, o := range m.services {
		for _, d := range destinationsOf(o) {
			if m.nowhere(d.host, "") {
				m.find(o.key, Warning, NotFound, "%s.host: no ServiceEntry has the host %s: add one, or correct the host", d.field, d.host)
			}
			if d.subset == "" {
				continue
			}
			rules := m.rulesOf(d.host)
			defined := slices.ContainsFunc(rules, func(rule object[*networking.DestinationRule]) bool {
				return slices.ContainsFunc(rule.spec.GetSubsets(), func(s *networking.Subset) bool { return s.GetName() == d.subset })
			})
			own := slices.IndexFunc(rules, func(rule object[*networking.DestinationRule]) bool {
				return !strings.HasPrefix(rule.spec.GetHost(), "*")
			})
			switch {
			case defined, m.unread(m.options.Partial, fmt.Sprintf("subset %s of %s", d.subset, d.host)):
			case own >= 0:
				m.find(o.key, Error, NotFound, "%s.subset: %s has no subset %q of %s: add it there, or correct the name",
					d.field, rules[own].key, d.subset, d.host)
			default:
				m.find(o.key, Warning, NotFound, "%s.subset: no DestinationRule of %s has subsets: add one that defines %q", d.field, d.host, d.subset)
			}
		}
	}
}

// gateways finds Gateways that are nowhere, and hosts that those that are there do not have.
func gateways(m *model) {
	for _, o := range m.services {
		for i, name := range o.spec.GetGateways() {
			if name == "mesh" {
				continue
			}
			namespace, short, ok := strings.Cut(name, "/")
			if !ok {
				namespace, short = o.key.Namespace, name
			}
			at := slices.IndexFunc(m.gateways, func(g object[*networking.Gateway]) bool {
				return g.key.Namespace == namespace && g.key.Name == short
			})
			switch {
			case at >= 0:
				m.hostsOn(o, m.gateways[at])
			case !m.unread(m.options.Partial, fmt.Sprintf("Gateway %s/%s", namespace, short)):
				m.find(o.key, Warning, NotFound, "spec.gateways[%d]: there is no Gateway %s/%s: add it, or correct the name", i, namespace, short)
			}
		}
	}
}

func (m *model) hostsOn(o object[*networking.VirtualService], gateway object[*networking.Gateway]) {
	for i, host := range o.spec.GetHosts() {
		if !slices.ContainsFunc(gateway.spec.GetServers(), func(s *networking.Server) bool {
			return slices.ContainsFunc(s.GetHosts(), func(offered string) bool {
				namespace, offered := splitHost(strings.ToLower(offered))
				return (namespace == "*" || namespace == o.key.Namespace || namespace == "." && gateway.key.Namespace == o.key.Namespace) &&
					overlap(offered, o.resolve(host))
			})
		}) {
			m.find(o.key, Warning, HostNotInGateway, "spec.hosts[%d]: no server of %s has the host %s for this namespace: add it there, or remove "+
				"it here", i, gateway.key, host)
		}
	}
}

// splitHost returns the namespace and the host of namespace/host; the namespace is * if there is none.
func splitHost(text string) (namespace, host string) {
	namespace, host, ok := strings.Cut(text, "/")
	if !ok {
		return "*", text
	}
	return namespace, host
}

// unreachable finds routes behind one that takes all requests.
func unreachable(m *model) {
	for _, o := range m.services {
		m.behind(o.key, "http", len(o.spec.GetHttp()), func(i int) bool {
			matches := o.spec.GetHttp()[i].GetMatch()
			return len(matches) == 0 || slices.ContainsFunc(matches, takesAll)
		})
		m.behind(o.key, "tcp", len(o.spec.GetTcp()), func(i int) bool { return len(o.spec.GetTcp()[i].GetMatch()) == 0 })
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

func (m *model) behind(key resource.Key, list string, n int, all func(i int) bool) {
	for i := range n - 1 {
		if all(i) {
			for j := i + 1; j < n; j++ {
				m.find(key, Warning, Unreachable, "spec.%s[%d]: no request gets here, since spec.%s[%d] takes all: move it before that one, or "+
					"remove it", list, j, list, i)
			}
			return
		}
	}
}

// subsets finds those that nothing uses, of hosts that VirtualServices route to.
func subsets(m *model) {
	used, routed := make(map[string]bool), make(map[string]bool)
	for _, o := range m.services {
		for _, d := range destinationsOf(o) {
			host := withoutDomain(d.host)
			used[host+"|"+d.subset], routed[host] = true, true
		}
	}
	for _, rule := range m.rules {
		host := withoutDomain(rule.resolve(rule.spec.GetHost()))
		if !routed[host] || m.options.Partial {
			continue
		}
		for i, s := range rule.spec.GetSubsets() {
			if !used[host+"|"+s.GetName()] {
				m.find(rule.key, Note, UnusedSubset, "spec.subsets[%d]: no VirtualService routes to the subset %q", i, s.GetName())
			}
		}
	}
}

// ruleHosts finds DestinationRules of hosts that are nowhere.
func ruleHosts(m *model) {
	for _, rule := range m.rules {
		if host := rule.resolve(rule.spec.GetHost()); m.nowhere(host, "") {
			m.find(rule.key, Warning, UnknownHost, "spec.host: no ServiceEntry has the host %s: add one, or correct the host", host)
		}
	}
}

// sidecars finds egress hosts that match nothing, and several Sidecars that are for all of a namespace.
func sidecars(m *model) {
	forAll := make(map[string][]resource.Key)
	for _, o := range m.sidecars {
		if o.spec.GetWorkloadSelector() == nil {
			forAll[o.key.Namespace] = append(forAll[o.key.Namespace], o.key)
		}
		for i, egress := range o.spec.GetEgress() {
			for j, text := range egress.GetHosts() {
				namespace, host := splitHost(text)
				switch namespace {
				case "~":
					continue
				case "*":
					namespace = ""
				case ".":
					namespace = o.key.Namespace
				}
				if !strings.HasPrefix(host, "*") && m.nowhere(host, namespace) {
					m.find(o.key, Warning, UnknownHost, "spec.egress[%d].hosts[%d]: no ServiceEntry matches %s: correct or remove it", i, j, text)
				}
			}
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(forAll)) {
		for _, key := range forAll[namespace][1:] {
			m.find(key, Error, ManySidecars, "%s has no workloadSelector either, and only one of a namespace counts: give one of them a selector",
				forAll[namespace][0])
		}
	}
}

// policyTargets finds policies whose references mean no client. A Gateway may be derived of what a source has that was not read.
func (m *model) policyTargets(s memstore.Snapshot) {
	mesh := index.NewMesh()
	kinds := []resource.Kind{
		resource.AuthorizationPolicy, resource.RequestAuthentication, resource.WasmPlugin, resource.EnvoyFilter, resource.Telemetry,
	}
	for _, kind := range append(kinds, resource.Gateway) {
		for r := range s.List(kind, "") {
			_ = mesh.Set(r.Key(), r, make(map[string]struct{})) // what cannot be decoded was found by others
		}
	}
	for _, kind := range kinds {
		for r := range s.List(kind, "") {
			if why := mesh.WhyUnattached(r.Key(), nil); why != "" && !m.unread(m.options.Partial, "the target of "+r.Key().String()) {
				m.find(r.Key(), Warning, NoClient, "spec.targetRefs: %s", why)
			}
		}
	}
}

// gatewayConflicts finds Gateways of the same workloads that have one host on one port.
func gatewayConflicts(m *model) {
	first := make(map[string]resource.Key)
	for _, o := range m.gateways {
		for i, server := range o.spec.GetServers() {
			for j, host := range server.GetHosts() {
				claim := fmt.Sprint(o.spec.GetSelector(), server.GetBind(), server.GetPort().GetNumber(), strings.ToLower(host))
				if other, taken := first[claim]; !taken {
					first[claim] = o.key
				} else if other != o.key {
					m.find(o.key, Warning, GatewayConflict, "spec.servers[%d].hosts[%d]: %s has %s on port %d of the same workloads: remove it from one "+
						"of them",
						i, j, other, host, server.GetPort().GetNumber())
				}
			}
		}
	}
}
