package envoy

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/memstore"
	"tributary/resource"
)

// mesh is the objects that Envoys are told of, decoded, by the hosts that they speak of. It is not safe for concurrent use.
type mesh struct {
	entries map[resource.Key]*entry
	spaces  map[string]*space
	hosts   map[string]map[resource.Key]*entry // by host, in lower case
	moved   map[string]struct{}                // hosts of which just endpoints have changed, until touchOthers adds them

	plaintext bool // is sent where ISTIO_MUTUAL is wanted; read-only

	gateways    map[resource.Key]*gateway
	named       map[string]int // hosts, by how many gateways
	sidecars    map[resource.Key]*sidecarRule
	configs     map[resource.Key]*meshConfig
	telemetries map[resource.Key]*telemetry
	observes    uint64 // how often it may have changed what clients log and trace
	policies    *rules[*networking.DestinationRule]
	virtuals    *rules[*networking.VirtualService]

	lookouts *lookouts
}

// space is what a namespace has that selects, and what it has that can be selected.
type space struct {
	selectors map[resource.Key]*entry
	workloads map[string]*workload // by name
}

// entry is a ServiceEntry.
type entry struct {
	key      resource.Key
	created  time.Time
	version  string
	object   *resource.Resource
	spec     *networking.ServiceEntry // without endpoints, which are most of it: they are decoded when they are translated
	sites    []locality               // of these
	selected map[string]*workload     // by its workloadSelector, by name; nil if it has none
}

// workload is a WorkloadEntry.
type workload struct {
	name    string
	version string
	labels  map[string]string
	spec    *networking.WorkloadEntry
}

func newMesh() *mesh {
	return &mesh{
		entries: make(map[resource.Key]*entry), spaces: make(map[string]*space), hosts: make(map[string]map[resource.Key]*entry), moved: make(map[string]struct{}),
		gateways: make(map[resource.Key]*gateway), named: make(map[string]int), sidecars: make(map[resource.Key]*sidecarRule), configs: make(map[resource.Key]*meshConfig),
		telemetries: make(map[resource.Key]*telemetry),
		policies:    newRules[*networking.DestinationRule](), virtuals: newRules[*networking.VirtualService](), lookouts: newLookouts(),
	}
}

// set makes r what the mesh has under key, which has nothing there any more if r is nil. It adds the hosts that it speaks of, and those
// that it spoke of before, to touched. What cannot be decoded is not there.
func (m *mesh) set(key resource.Key, r *resource.Resource, touched map[string]struct{}) error {
	switch key.Kind {
	case resource.ServiceEntry:
		spec, endpoints, err := decodeEntry(r)
		m.setEntry(key, r, spec, sitesOf(endpoints), touched)
		return err
	case resource.WorkloadEntry:
		spec, err := specOf[*networking.WorkloadEntry](r)
		m.setWorkload(key, r, spec)
		return err
	case resource.Gateway:
		spec, err := specOf[*networking.Gateway](r)
		m.lookouts.set(key, lookedAt(r, spec))
		m.setGateway(key, r, spec, touched)
		return err
	case resource.Sidecar:
		spec, err := specOf[*networking.Sidecar](r)
		m.lookouts.set(key, lookedAt(r, spec))
		m.setSidecar(key, r, spec)
		return err
	case resource.MeshConfig:
		spec, err := specOf[*meshv1alpha1.MeshConfig](r)
		m.setConfig(key, r, spec, touched)
		return err
	case resource.Telemetry:
		spec, err := specOf[*telemetryv1alpha1.Telemetry](r)
		m.lookouts.set(key, lookedAt(r, spec))
		m.setTelemetry(key, r, spec, touched)
		return err
	case resource.DestinationRule:
		spec, err := specOf[*networking.DestinationRule](r)
		m.lookouts.set(key, lookedAt(r, spec))
		m.touch(m.policies.set(key, destinationRule(r, spec)), touched)
		return err
	case resource.VirtualService:
		spec, err := specOf[*networking.VirtualService](r)
		m.lookouts.set(key, lookedAt(r, spec))
		m.touchTargets(key, touched)
		m.touch(m.virtuals.set(key, virtualService(r, spec)), touched)
		m.touchTargets(key, touched)
		touched[delegatePrefix+key.FullName()] = struct{}{}
		return err
	}
	return nil
}

// touchTargets adds the hosts to which a VirtualService leads: with a Sidecar, it may be for its sake that clients know of them.
func (m *mesh) touchTargets(key resource.Key, touched map[string]struct{}) {
	if r := m.virtuals.byKey[key]; r != nil && len(m.sidecars) > 0 {
		m.touch(r.leadsTo, touched)
		for _, d := range m.delegates(r) {
			m.touch(d.leadsTo, touched)
		}
	}
}

// touch adds hosts, and those that they stand for if they are wildcards, to touched.
func (m *mesh) touch(hosts []string, touched map[string]struct{}) {
	for _, host := range hosts {
		touched[host] = struct{}{}
		if !isWildcard(host) {
			continue
		}
		touchMatching(host, m.hosts, touched)
		touchMatching(host, m.virtuals.exact, touched)
		touchMatching(host, m.named, touched)
	}
}

// touchOthers adds the hosts on which it bears what touched are: those whose routes lead to one of them, and the wildcards that stand for one. Where just
// endpoints have changed, it bears on nobody else: routes lead to a host, its ports and its policy.
func (m *mesh) touchOthers(touched map[string]struct{}) {
	m.touchProviders(touched)
	for _, host := range slices.Collect(maps.Keys(touched)) {
		for _, r := range m.virtuals.leads[host] {
			m.touchRoutes(r, touched)
			for _, root := range m.virtuals.leads[delegatePrefix+r.key.FullName()] {
				m.touchRoutes(root, touched)
			}
		}
		for wildcard := range m.virtuals.of(host) {
			touched[wildcard] = struct{}{}
		}
	}
	maps.Copy(touched, m.moved)
	clear(m.moved)
}

// touchRoutes adds the hosts that have routes of a VirtualService: those of services only if it is for sidecars.
func (m *mesh) touchRoutes(r *rule[*networking.VirtualService], touched map[string]struct{}) {
	if forMesh(r.spec) {
		m.touch(r.hosts, touched)
		return
	}
	for _, host := range r.hosts {
		touched[host] = struct{}{}
		if isWildcard(host) {
			touchMatching(host, m.virtuals.exact, touched)
			touchMatching(host, m.named, touched)
		}
	}
}

func touchMatching[V any](wildcard string, hosts map[string]V, touched map[string]struct{}) {
	for known := range hosts {
		if matches(wildcard, known) {
			touched[known] = struct{}{}
		}
	}
}

// specOf decodes the spec of r, and returns nil if there is no r.
func specOf[T any](r *resource.Resource) (spec T, err error) {
	if r == nil {
		return spec, nil
	}
	m, err := r.Spec()
	if err != nil {
		return spec, err
	}
	spec, _ = m.(T)
	return spec, nil
}

func (m *mesh) setEntry(key resource.Key, r *resource.Resource, spec *networking.ServiceEntry, sites []locality, touched map[string]struct{}) {
	if spec != nil {
		m.lookouts.hold(lookedAtByEntry(key.Namespace, spec.GetExportTo()))
		m.lookouts.hold(lookedAtBySites(sites...))
	}
	if old := m.entries[key]; old != nil {
		m.lookouts.release(lookedAtByEntry(key.Namespace, old.spec.GetExportTo()))
		m.lookouts.release(lookedAtBySites(old.sites...))
		if spec != nil && old.created.Equal(r.Created()) && proto.Equal(old.spec, spec) {
			touched = m.moved
		}
		old.touch(touched)
		for _, host := range old.hosts() {
			delete(m.hosts[host], key)
			if len(m.hosts[host]) == 0 {
				delete(m.hosts, host)
			}
		}
		delete(m.entries, key)
		m.in(key.Namespace, func(s *space) { delete(s.selectors, key) })
	}
	if spec == nil {
		return
	}
	e := &entry{key: key, created: r.Created(), version: r.Version(), object: r, spec: spec, sites: sites}
	m.entries[key] = e
	e.touch(touched)
	for _, host := range e.hosts() {
		if m.hosts[host] == nil {
			m.hosts[host] = make(map[resource.Key]*entry)
		}
		m.hosts[host][key] = e
	}
	if spec.GetWorkloadSelector() == nil {
		return
	}
	e.selected = make(map[string]*workload)
	m.in(key.Namespace, func(s *space) {
		s.selectors[key] = e
		for _, w := range s.workloads {
			if e.selects(w) {
				e.selected[w.name] = w
			}
		}
	})
}

func newWorkload(r *resource.Resource, spec *networking.WorkloadEntry) *workload {
	labels := make(map[string]string)
	maps.Copy(labels, spec.GetLabels())
	maps.Copy(labels, r.Labels())
	return &workload{name: r.Key().Name, version: r.Version(), labels: labels, spec: spec}
}

// site is where the workload is.
func (w *workload) site() locality { return localityOf(siteText(w.spec, w.labels)) }

func (m *mesh) setWorkload(key resource.Key, r *resource.Resource, spec *networking.WorkloadEntry) {
	m.in(key.Namespace, func(s *space) {
		var w *workload
		old := s.workloads[key.Name]
		if spec != nil {
			w = newWorkload(r, spec)
			m.lookouts.hold(lookedAtBySites(w.site()))
			s.workloads[key.Name] = w
		} else {
			delete(s.workloads, key.Name)
		}
		if old != nil {
			m.lookouts.release(lookedAtBySites(old.site()))
		}
		for _, e := range s.selectors {
			_, had := e.selected[key.Name]
			has := w != nil && e.selects(w)
			if has {
				e.selected[key.Name] = w
			} else {
				delete(e.selected, key.Name)
			}
			if had || has {
				e.touch(m.moved)
			}
		}
	})
}

// in calls f with a namespace, which is forgotten if nothing is left there.
func (m *mesh) in(namespace string, f func(*space)) {
	s := m.spaces[namespace]
	if s == nil {
		s = &space{selectors: make(map[resource.Key]*entry), workloads: make(map[string]*workload)}
		m.spaces[namespace] = s
	}
	f(s)
	if len(s.selectors)+len(s.workloads) == 0 {
		delete(m.spaces, namespace)
	}
}

// hosts returns the hosts of the entry, in lower case.
func (e *entry) hosts() []string {
	hosts := make([]string, 0, len(e.spec.GetHosts()))
	for _, host := range e.spec.GetHosts() {
		hosts = append(hosts, strings.ToLower(host))
	}
	return hosts
}

func (e *entry) touch(touched map[string]struct{}) {
	for _, host := range e.hosts() {
		touched[host] = struct{}{}
	}
}

// selects says whether the entry's workloadSelector selects w, which is of the same namespace. An empty one selects nothing.
func (e *entry) selects(w *workload) bool {
	wanted := e.spec.GetWorkloadSelector().GetLabels()
	for name, value := range wanted {
		if got, ok := w.labels[name]; !ok || got != value {
			return false
		}
	}
	return len(wanted) > 0
}

// endpoints returns the endpoints of the entry: its own, or the workloads that it selects, in order of name.
func (e *entry) endpoints() []endpoint {
	var list []endpoint
	if e.selected == nil {
		_, endpoints, _ := decodeEntry(e.object) // it could be decoded when it came
		list = make([]endpoint, len(endpoints))
		for i, l := range endpoints {
			list[i] = endpoint{address: l.address, spec: l.rest, labels: l.rest.GetLabels(), owner: e.key, index: i}
		}
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(e.selected)) {
		w := e.selected[name]
		list = append(list, endpoint{workload: name, namespace: e.key.Namespace, address: w.spec.GetAddress(), spec: w.spec, labels: w.labels, owner: e.key})
	}
	return list
}

// visibleTo says whether the entry is exported to the namespace.
func (e *entry) visibleTo(namespace string) bool {
	return visibleTo(e.spec.GetExportTo(), e.key.Namespace, namespace)
}

func (e *entry) seniority(client string) seniority {
	return seniorityOf(e.key, e.created, e.spec.GetExportTo(), client)
}

// differing returns the keys of all that snap has otherwise than the mesh, of what the mesh would have.
func (m *mesh) differing(snap memstore.Snapshot) []resource.Key {
	var keys []resource.Key
	has := m.versions()
	for _, kind := range kinds {
		for r := range snap.List(kind, "") {
			if has[r.Key()] != r.Version() {
				keys = append(keys, r.Key())
			}
		}
	}
	for key := range has {
		if snap.Get(key) == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// kinds are those that a mesh consists of.
var kinds = []resource.Kind{resource.ServiceEntry, resource.WorkloadEntry, resource.DestinationRule, resource.VirtualService, resource.Gateway, resource.Sidecar, resource.MeshConfig, resource.Telemetry}

// versions returns the version of each object.
func (m *mesh) versions() map[resource.Key]string {
	all := make(map[resource.Key]string)
	for key, e := range m.entries {
		all[key] = e.version
	}
	for namespace, s := range m.spaces {
		for name, w := range s.workloads {
			all[resource.Key{Kind: resource.WorkloadEntry, Namespace: namespace, Name: name}] = w.version
		}
	}
	for key, g := range m.gateways {
		all[key] = g.version
	}
	for key, s := range m.sidecars {
		all[key] = s.version
	}
	for key, c := range m.configs {
		all[key] = c.version
	}
	for key, t := range m.telemetries {
		all[key] = t.version
	}
	for key, r := range m.policies.byKey {
		all[key] = r.version
	}
	for key, r := range m.virtuals.byKey {
		all[key] = r.version
	}
	return all
}

// allHosts returns the hosts of all services, and those that only have routes.
func (m *mesh) allHosts() map[string]struct{} {
	hosts := map[string]struct{}{gatewayUnit: {}}
	for host := range m.hosts {
		hosts[host] = struct{}{}
	}
	for _, v := range m.virtuals.byKey {
		for _, host := range v.hosts {
			hosts[host] = struct{}{}
		}
	}
	for host := range m.named {
		hosts[host] = struct{}{}
	}
	return hosts
}
