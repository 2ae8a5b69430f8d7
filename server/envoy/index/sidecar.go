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

// SidecarRule is a Sidecar: which services its clients know, and what becomes of connections to anything else.
type SidecarRule struct {
	key     resource.Key
	created time.Time
	version string
	spec    *networking.Sidecar
	egress  []egress
}

// egress is an egress listener of a Sidecar.
type egress struct {
	port     uint32 // of services; 0 for all ports that no listener before has
	protocol string // of the listener, if given
	bind     string // the address, if given
	imports  []imported
	excludes []imported
}

// imported is a namespace and a host, each of which may be a wildcard. The namespace "." is the client's own.
type imported struct{ namespace, host string }

func sidecarOf(r *resource.Resource, spec *networking.Sidecar) *SidecarRule {
	s := &SidecarRule{key: r.Key(), created: r.Created(), version: r.Version(), spec: spec}
	for _, e := range spec.GetEgress() {
		part := egress{port: e.GetPort().GetNumber(), bind: model.AddressOf(e.GetBind())}
		if part.protocol = e.GetPort().GetProtocol(); strings.EqualFold(part.protocol, model.HTTPProxy) {
			part.protocol = ""
		}
		if !resource.IsAddress(part.bind) {
			part.bind = ""
		}
		for _, h := range e.GetHosts() {
			namespace, host, ok := strings.Cut(strings.ToLower(h), "/")
			excluded, excludes := strings.CutPrefix(namespace, "~")
			switch {
			case !ok:
			case excludes && excluded != "":
				part.excludes = append(part.excludes, imported{excluded, host})
			default:
				part.imports = append(part.imports, imported{namespace, host})
			}
		}
		s.egress = append(s.egress, part)
	}
	if len(s.egress) == 0 {
		s.egress = []egress{{imports: []imported{{"*", "*"}}}}
	}
	return s
}

// inNamespace says whether the import covers a namespace.
func (i imported) inNamespace(namespace, client string) bool {
	return i.namespace == "*" || i.namespace == namespace || i.namespace == "." && namespace == client
}

// importsService says whether a client knows the service of a host in a namespace. Without a Sidecar (nil), it knows all.
func (e *egress) importsService(host, namespace, client string) bool {
	matches := func(i imported) bool { return i.inNamespace(namespace, client) && model.Matches(i.host, host) }
	return e == nil || slices.ContainsFunc(e.imports, matches) && !slices.ContainsFunc(e.excludes, matches)
}

// importsRoutes says whether a client uses the routes of a VirtualService: those of an imported host, or of a wildcard that matches one,
// which has no routes of Gateway API.
func (e *egress) importsRoutes(r *model.Rule[*networking.VirtualService], client string) bool {
	return e == nil || slices.ContainsFunc(r.Hosts, func(host string) bool {
		return slices.ContainsFunc(e.imports, func(i imported) bool {
			return i.inNamespace(r.Key.Namespace, client) &&
				(model.Matches(i.host, host) || r.Derived != model.DerivedGateway && model.Matches(host, i.host))
		}) && !slices.ContainsFunc(e.excludes, func(i imported) bool {
			return i.inNamespace(r.Key.Namespace, client) && model.Matches(i.host, host)
		})
	})
}

// parts returns the egress listeners; without a Sidecar one, nil, that imports all.
func (s *SidecarRule) parts() []*egress {
	if s == nil {
		return []*egress{nil}
	}
	all := make([]*egress, len(s.egress))
	for i := range s.egress {
		all[i] = &s.egress[i]
	}
	return all
}

// part returns the index of the first egress listener for a port, or -1.
func (s *SidecarRule) part(port uint32) int {
	return slices.IndexFunc(s.parts(), func(e *egress) bool { return e == nil || e.port == 0 || e.port == port })
}

// Imports says whether clients know a service of a namespace.
func (s *SidecarRule) Imports(host, namespace, client string) bool {
	return slices.ContainsFunc(s.parts(), func(e *egress) bool { return e.importsService(host, namespace, client) })
}

// assign sets the egress listener of a port of a service, if the client reaches the port by one, and says whether the client knows the
// port. If the listener for the port does not import the service, the one for all ports may: the port comes last in it.
func (s *SidecarRule) assign(host, namespace, client string, p *model.Port) (known bool) {
	if s == nil {
		return true
	}
	for _, e := range s.egress {
		known = known || (e.port == 0 || e.port == p.Number) && e.importsService(host, namespace, client)
	}
	p.Part = s.part(p.Number)
	if p.Part >= 0 && !s.egress[p.Part].importsService(host, namespace, client) {
		p.Late = true
		p.Part = slices.IndexFunc(s.egress, func(e egress) bool { return e.port == 0 && e.importsService(host, namespace, client) })
	}
	if p.Unreached = p.Part < 0; p.Unreached {
		return known
	}
	by := &s.egress[p.Part]
	p.Bind = by.bind
	if spoken, ok := model.ProtocolOf(by.protocol); ok && by.protocol != "" {
		p.Spoken = spoken
	}
	return known
}

// SidecarFor returns the Sidecar of a profile, or nil: the oldest in its namespace that selects its labels, else the oldest there without a
// selector, else the oldest without a selector in the root namespace.
func (m *Mesh) SidecarFor(p model.Profile) (first *SidecarRule) {
	if p.Role == model.Ingress || len(m.sidecars) == 0 {
		return nil
	}
	labels := p.LabelMap()
	rank := func(s *SidecarRule) int {
		switch {
		case s.key.Namespace == model.RootNamespace && p.Namespace != model.RootNamespace:
			return 3
		case s.spec.GetWorkloadSelector() == nil:
			return 2
		}
		return 1
	}
	for _, s := range m.sidecars {
		r := rank(s)
		switch {
		case s.key.Namespace != p.Namespace && r != 3, r == 3 && s.spec.GetWorkloadSelector() != nil:
		case !model.SelectsLabels(s.spec.GetWorkloadSelector().GetLabels(), labels):
		case first == nil || cmp.Or(cmp.Compare(r, rank(first)), s.created.Compare(first.created), model.OlderName(s.key, first.key)) < 0:
			first = s
		}
	}
	return first
}

// OfNoHost returns the objects that affect all hosts of the clients of a profile: their Sidecar, Telemetries,
// EnvoyFilters and WasmPlugins, and the MeshConfig.
func (m *Mesh) OfNoHost(p model.Profile) []resource.Key {
	all := slices.Concat(slices.Collect(maps.Keys(m.configs)), model.KeysOf(m.telemetriesOf(p)))
	only := m.SidecarFor(p)
	if e := m.Extension(p, only); e != nil {
		all = append(all, e.Objects...)
	}
	if only != nil {
		all = append(all, only.key)
	}
	return all
}

// Restricts says whether clients reach only services that they know.
func (m *Mesh) Restricts(s *SidecarRule) bool {
	if s != nil && s.spec.GetOutboundTrafficPolicy() != nil {
		return s.spec.GetOutboundTrafficPolicy().GetMode() == networking.OutboundTrafficPolicy_REGISTRY_ONLY
	}
	policy := m.config().Spec.GetOutboundTrafficPolicy()
	return policy != nil && policy.GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
}

// config returns the MeshConfig, of several the first by name, or an empty one.
func (m *Mesh) config() *model.MeshConfig {
	first := &model.MeshConfig{}
	for _, c := range m.configs {
		if first.Spec == nil || c.Key.Name < first.Key.Name {
			first = c
		}
	}
	return first
}

// Same says whether two rules have the same object as their source.
func (s *SidecarRule) Same(as *SidecarRule) bool {
	if s == nil || as == nil {
		return s == as
	}
	return s.key == as.key && s.version == as.version && s.created.Equal(as.created)
}

func (m *Mesh) setSidecar(key resource.Key, r *resource.Resource, spec *networking.Sidecar) {
	if delete(m.sidecars, key); spec != nil {
		m.sidecars[key] = sidecarOf(r, spec)
	}
}

func (m *Mesh) setConfig(key resource.Key, r *resource.Resource, spec *meshv1alpha1.MeshConfig, touched map[string]struct{}) {
	before := m.config()
	delete(m.configs, key)
	if spec != nil {
		m.configs[key] = &model.MeshConfig{Key: key, Version: r.Version(), Spec: spec}
	}
	m.extendAnew(touched)
	m.sought = nil
	if now := m.config(); before.AutoMutual() != now.AutoMutual() || !slices.Equal(before.TrustDomains(), now.TrustDomains()) {
		m.touchMutual(model.RootNamespace)
	}
}

// routedPorts returns the ports of a host to which VirtualServices of a client route, 0 for all ports. Routes of an egress listener with a
// port lead to that port.
func (m *Mesh) routedPorts(host string, p model.Profile, only *SidecarRule) map[uint32]bool {
	ports := make(map[uint32]bool)
	add := func(root, r *model.Rule[*networking.VirtualService]) {
		if !model.VisibleTo(root.ExportTo, root.Key.Namespace, p.Namespace) || !forMesh(root.Spec) {
			return
		}
		for d := range destinations(forRequestsFrom(p.Namespace, r.Spec)) {
			if r.WholeName(d.GetHost()) != host {
				continue
			}
			for _, e := range only.parts() {
				if e.importsRoutes(root, p.Namespace) {
					ports[cmp.Or(e.port, d.GetPort().GetNumber())] = true
				}
			}
		}
	}
	for _, r := range m.Virtuals.leads[host] {
		if len(r.Spec.GetHosts()) > 0 {
			add(r, r)
			continue
		}
		for _, root := range m.Virtuals.leads[delegatePrefix+r.Key.FullName()] {
			if slices.Contains(m.delegates(root), r) {
				add(root, r)
			}
		}
	}
	return ports
}

// forRequestsFrom returns a VirtualService without the HTTP routes for requests from other namespaces.
func forRequestsFrom(namespace string, spec *networking.VirtualService) *networking.VirtualService {
	some := &networking.VirtualService{Tls: spec.GetTls(), Tcp: spec.GetTcp()}
	for _, h := range spec.GetHttp() {
		if len(h.GetMatch()) == 0 || slices.ContainsFunc(h.GetMatch(), func(m *networking.HTTPMatchRequest) bool {
			return m.GetSourceNamespace() == "" || m.GetSourceNamespace() == namespace
		}) {
			some.Http = append(some.Http, h)
		}
	}
	return some
}
