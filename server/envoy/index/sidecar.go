package index

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Sidecar is a Sidecar: the services that its clients see, and the policy for other destinations.
type Sidecar struct {
	key     resource.Key
	created time.Time
	version string
	spec    *networking.Sidecar
	egress  []*egress
}

// egress is an egress listener of a Sidecar.
type egress struct {
	port     uint32 // of services; 0 for all ports without an earlier listener
	protocol string // of the listener, if given
	bind     string // the address, if given
	imports  []imported
	excludes []imported
}

// imported is a namespace and a host; both may be wildcards. The namespace "." is that of the client.
type imported struct{ namespace, host string }

func sidecarOf(object *resource.Resource, spec *networking.Sidecar) *Sidecar {
	sidecar := &Sidecar{key: object.Key(), created: object.Created(), version: object.Version(), spec: spec}
	for _, egressListener := range spec.GetEgress() {
		listener := &egress{port: egressListener.GetPort().GetNumber(), bind: model.AddressOf(egressListener.GetBind())}
		if listener.protocol = egressListener.GetPort().GetProtocol(); strings.EqualFold(listener.protocol, model.HTTPProxy) {
			listener.protocol = ""
		}
		if !resource.IsAddress(listener.bind) {
			listener.bind = ""
		}
		for _, text := range egressListener.GetHosts() {
			namespace, host, ok := strings.Cut(strings.ToLower(text), "/")
			excluded, isExcluded := strings.CutPrefix(namespace, "~")
			switch {
			case !ok:
			case isExcluded && excluded != "":
				listener.excludes = append(listener.excludes, imported{excluded, host})
			default:
				listener.imports = append(listener.imports, imported{namespace, host})
			}
		}
		sidecar.egress = append(sidecar.egress, listener)
	}
	if len(sidecar.egress) == 0 {
		sidecar.egress = []*egress{{imports: []imported{{"*", "*"}}}}
	}
	return sidecar
}

// inNamespace reports whether the import covers a namespace.
func (i imported) inNamespace(namespace, client string) bool {
	return i.namespace == "*" || i.namespace == namespace || i.namespace == "." && namespace == client
}

// importsService reports whether a client sees the service of a host in a namespace. Without a Sidecar (nil), it sees
// all.
func (e *egress) importsService(host, namespace, client string) bool {
	matches := func(pattern imported) bool {
		return pattern.inNamespace(namespace, client) && model.Matches(pattern.host, host)
	}
	return e == nil || slices.ContainsFunc(e.imports, matches) && !slices.ContainsFunc(e.excludes, matches)
}

// hasPortOf reports whether the listener is for a port of an entry.
func (e *egress) hasPortOf(candidate *entry) bool {
	return e == nil || e.port == 0 || slices.ContainsFunc(candidate.Spec.GetPorts(),
		func(port *networking.ServicePort) bool { return port.GetNumber() == e.port })
}

// importsRoutes reports whether a client uses the routes of a VirtualService: those of an imported host, or of a
// wildcard that matches one. Routes of the Gateway API have no such wildcard.
func (e *egress) importsRoutes(virtualService *model.VirtualService, client string) bool {
	return e == nil || slices.ContainsFunc(virtualService.Hosts, func(host string) bool {
		return slices.ContainsFunc(e.imports, func(i imported) bool {
			return i.inNamespace(virtualService.Key.Namespace, client) &&
				(model.Matches(i.host, host) || virtualService.Derived != model.DerivedGateway && model.Matches(host, i.host))
		}) && !slices.ContainsFunc(e.excludes, func(i imported) bool {
			return i.inNamespace(virtualService.Key.Namespace, client) && model.Matches(i.host, host)
		})
	})
}

// egressListeners returns the egress listeners; without a Sidecar the only one is nil, and imports all.
func (s *Sidecar) egressListeners() []*egress {
	if s == nil {
		return []*egress{nil}
	}
	return s.egress
}

// listenerIndex returns the index of the first egress listener for a port, or -1.
func (s *Sidecar) listenerIndex(port uint32) int {
	return slices.IndexFunc(s.egressListeners(), func(e *egress) bool { return e == nil || e.port == 0 || e.port == port })
}

// Imports reports whether clients see a service of a namespace.
func (s *Sidecar) Imports(host, namespace, client string) bool {
	return slices.ContainsFunc(s.egressListeners(),
		func(e *egress) bool { return e.importsService(host, namespace, client) })
}

// assign sets the egress listener of a service's port, if the client reaches it by a listener, and reports whether the
// client sees the port. If the listener for the port does not import the service, the one for all ports may: the port
// comes last in it.
func (s *Sidecar) assign(host, namespace, client string, port *model.Port) (visible bool) {
	if s == nil {
		return true
	}
	for _, listener := range s.egress {
		visible = visible || (listener.port == 0 || listener.port == port.Number) &&
			listener.importsService(host, namespace, client)
	}
	port.Part = s.listenerIndex(port.Number)
	if port.Part >= 0 && !s.egress[port.Part].importsService(host, namespace, client) {
		port.Late = true
		port.Part = slices.IndexFunc(s.egress, func(listener *egress) bool {
			return listener.port == 0 && listener.importsService(host, namespace, client)
		})
	}
	port.Unreached = port.Part < 0
	if port.Unreached {
		return visible
	}
	listener := s.egress[port.Part]
	port.Bind = listener.bind
	if spoken, ok := model.ProtocolOf(listener.protocol); ok && listener.protocol != "" {
		port.Spoken = spoken
	}
	return visible
}

// SidecarFor returns the Sidecar of a profile, or nil: the oldest in its namespace that selects its labels, else the
// oldest there without a selector, else the oldest without a selector in the root namespace.
func (m *Mesh) SidecarFor(profile model.Profile) (first *Sidecar) {
	if profile.Role == model.Ingress || len(m.sidecars) == 0 {
		return nil
	}
	labels := profile.LabelMap()
	rank := func(candidate *Sidecar) int {
		switch {
		case candidate.key.Namespace == model.RootNamespace && profile.Namespace != model.RootNamespace:
			return 3
		case candidate.spec.GetWorkloadSelector() == nil:
			return 2
		}
		return 1
	}
	for _, candidate := range m.sidecars {
		candidateRank := rank(candidate)
		switch {
		case candidate.key.Namespace != profile.Namespace && candidateRank != 3, candidateRank == 3 &&
			candidate.spec.GetWorkloadSelector() != nil:
		case !model.SelectsLabels(candidate.spec.GetWorkloadSelector().GetLabels(), labels):
		case first == nil || cmp.Or(cmp.Compare(candidateRank, rank(first)), candidate.created.Compare(first.created),
			model.OlderName(candidate.key, first.key)) < 0:
			first = candidate
		}
	}
	return first
}

// MeshWideObjects returns the objects that affect all hosts of the clients of a profile: their Sidecar, Telemetries,
// EnvoyFilters and WasmPlugins, and the MeshConfig.
func (m *Mesh) MeshWideObjects(profile model.Profile) []resource.Key {
	keys := slices.Concat(slices.Collect(maps.Keys(m.configs)), model.KeysOf(m.telemetriesOf(profile)))
	sidecar := m.SidecarFor(profile)
	if e := m.Extension(profile, sidecar); e != nil {
		keys = append(keys, e.Objects...)
	}
	if sidecar != nil {
		keys = append(keys, sidecar.key)
	}
	return keys
}

// Restricts reports whether clients reach only services that they see.
func (m *Mesh) Restricts(s *Sidecar) bool {
	if s != nil && s.spec.GetOutboundTrafficPolicy() != nil {
		return s.spec.GetOutboundTrafficPolicy().GetMode() == networking.OutboundTrafficPolicy_REGISTRY_ONLY
	}
	policy := m.config().Spec.GetOutboundTrafficPolicy()
	return policy != nil && policy.GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
}

// config returns the first MeshConfig by name, or an empty one.
func (m *Mesh) config() *model.MeshConfig {
	first := &model.MeshConfig{}
	for _, c := range m.configs {
		if first.Spec == nil || c.Key.Name < first.Key.Name {
			first = c
		}
	}
	return first
}

// Same reports whether both come from the same version of an object.
func (s *Sidecar) Same(next *Sidecar) bool {
	if s == nil || next == nil {
		return s == next
	}
	return s.key == next.key && s.version == next.version && s.created.Equal(next.created)
}

func (m *Mesh) setSidecar(key resource.Key, object *resource.Resource, spec *networking.Sidecar) {
	delete(m.sidecars, key)
	if spec != nil {
		m.sidecars[key] = sidecarOf(object, spec)
	}
}

func (m *Mesh) setConfig(key resource.Key, object *resource.Resource, spec *meshv1alpha1.MeshConfig) {
	before := m.config()
	delete(m.configs, key)
	if spec != nil {
		m.configs[key] = &model.MeshConfig{Key: key, Version: object.Version(), Spec: spec}
	}
	m.extensionsChanged()
	m.referencedHosts = nil
	if now := m.config(); before.AutoMutual() != now.AutoMutual() ||
		!slices.Equal(before.TrustDomains(), now.TrustDomains()) {
		m.touchMutual(model.RootNamespace)
	}
}

// routedPorts returns the ports of a host that a client's VirtualServices route to, 0 for all ports. Routes of an
// egress listener with a port lead to that port.
func (m *Mesh) routedPorts(host string, profile model.Profile, sidecar *Sidecar) map[uint32]bool {
	ports := make(map[uint32]bool)
	addRoutes := func(root *model.VirtualService) {
		if !model.VisibleTo(root.ExportTo, root.Key.Namespace, profile.Namespace) || !forMesh(root.Spec) {
			return
		}
		merged := m.withDelegates(root, new(model.Findings))
		for _, destination := range destinations(forRequestsFrom(profile.Namespace, merged.Spec)) {
			if root.WholeName(destination.GetHost()) != host {
				continue
			}
			for _, listener := range sidecar.egressListeners() {
				if listener.importsRoutes(root, profile.Namespace) {
					ports[cmp.Or(listener.port, destination.GetPort().GetNumber())] = true
				}
			}
		}
	}
	for _, virtualService := range m.Virtuals.byDestination[host] {
		if len(virtualService.Spec.GetHosts()) > 0 {
			addRoutes(virtualService)
			continue
		}
		for _, root := range m.Virtuals.byDestination[delegatePrefix+virtualService.Key.FullName()] {
			if slices.Contains(m.delegates(root), virtualService) {
				addRoutes(root)
			}
		}
	}
	return ports
}

// forRequestsFrom returns a VirtualService without the HTTP routes for requests from other namespaces.
func forRequestsFrom(namespace string, spec *networking.VirtualService) *networking.VirtualService {
	relevant := &networking.VirtualService{Tls: spec.GetTls(), Tcp: spec.GetTcp()}
	for _, route := range spec.GetHttp() {
		if len(route.GetMatch()) == 0 || slices.ContainsFunc(route.GetMatch(), func(match *networking.HTTPMatchRequest) bool {
			return match.GetSourceNamespace() == "" || match.GetSourceNamespace() == namespace
		}) {
			relevant.Http = append(relevant.Http, route)
		}
	}
	return relevant
}
