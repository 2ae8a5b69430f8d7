package index

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	securityv1beta1 "istio.io/api/security/v1beta1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

// Mesh holds the decoded objects for Envoys, by the hosts that they name. It is not safe for concurrent use.
type Mesh struct {
	Entries map[resource.Key]*entry
	spaces  map[string]*space
	Hosts   map[string]map[resource.Key]*entry // by host, in lower case
	touched map[string]bool                    // hosts that changes concern, until Touched returns them
	moved   map[string]bool                    // the same for changes of endpoints only

	Warn bool // unenforceable objects are reported, and their traffic is sent in plaintext, not refused; read-only

	GuardFilters bool // only EnvoyFilters of the root namespace may bypass policies; read-only

	Sees func(namespace string) bool // the namespaces with security objects that clients may see; all if nil; read-only

	Gateways     map[resource.Key]*model.Gateway
	gatewayHosts map[string]int // the number of gateways of each host
	sidecars     map[resource.Key]*Sidecar
	configs      map[resource.Key]*model.MeshConfig

	telemetries      objects[*telemetryv1alpha1.Telemetry]
	authorizations   objects[*securityv1beta1.AuthorizationPolicy]
	tokens           objects[*securityv1beta1.RequestAuthentication]
	peers            objects[*securityv1beta1.PeerAuthentication]
	referencedHosts  map[string]bool // see findReferencedHosts; nil until used
	Invalid          []resource.Key  // security objects without a valid version
	serving          serving
	filters          objects[*extend.Decoded]
	plugins          objects[*extensionsv1alpha1.WasmPlugin]
	ExtensionChanges uint64 // the number of calls of extensionsChanged
	Policies         *rules[*networking.DestinationRule]
	Virtuals         *rules[*networking.VirtualService]
	merged           mergedVirtualServices

	Selectors *SelectorIndex
}

// space holds the workloads of a namespace, and the entries with a workloadSelector.
type space struct {
	selectors map[resource.Key]*entry
	workloads map[string]*workload // by name
	groups    map[string]*group    // by name
}

// entry is a ServiceEntry.
type entry struct {
	Key      resource.Key
	created  time.Time
	version  string
	object   *resource.Resource
	Spec     *networking.ServiceEntry // without endpoints, its largest part: translation decodes them
	selected map[string]*workload     // the workloads of its workloadSelector, by name; nil without one
}

// workload is a WorkloadEntry.
type workload struct {
	name    string
	version string
	labels  map[string]string
	spec    *networking.WorkloadEntry

	registeredBy string // the name of a group, or ""
	group        *group // of the workload, or nil
}

// NewMesh returns a mesh without objects.
func NewMesh() *Mesh {
	return &Mesh{
		Entries: make(map[resource.Key]*entry), spaces: make(map[string]*space),
		Hosts:   make(map[string]map[resource.Key]*entry),
		touched: make(map[string]bool), moved: make(map[string]bool),
		Gateways: make(map[resource.Key]*model.Gateway), gatewayHosts: make(map[string]int),
		sidecars:       make(map[resource.Key]*Sidecar),
		configs:        make(map[resource.Key]*model.MeshConfig),
		telemetries:    make(objects[*telemetryv1alpha1.Telemetry]),
		authorizations: make(objects[*securityv1beta1.AuthorizationPolicy]),
		tokens:         make(objects[*securityv1beta1.RequestAuthentication]),
		peers:          make(objects[*securityv1beta1.PeerAuthentication]),
		serving:        serving{places: make(map[place]*placePorts)},
		filters:        make(objects[*extend.Decoded]), plugins: make(objects[*extensionsv1alpha1.WasmPlugin]),
		merged:   mergedVirtualServices{byKey: make(map[resource.Key]mergedVirtualService)},
		Policies: newRules[*networking.DestinationRule](), Virtuals: newRules[*networking.VirtualService](),
		Selectors: newSelectorIndex(),
	}
}

// Contains reports whether the mesh has the ServiceEntry or VirtualService of a key.
func (m *Mesh) Contains(key resource.Key) bool {
	return m.Entries[key] != nil || m.Virtuals.ByKey[key] != nil
}

// Set replaces the object of a key, or removes it if the new one is nil or cannot be decoded. Touched returns
// the hosts that the old and the new object name.
func (m *Mesh) Set(key resource.Key, object *resource.Resource) error {
	if !slices.Contains(Kinds, key.Kind) {
		return nil
	}
	var spec any
	var err error
	switch {
	case object == nil:
	case key.Kind == resource.ServiceEntry:
		spec, _, err = decodeEntry(object)
	default:
		spec, err = object.Spec()
	}
	if err != nil {
		spec = nil
	}
	if slices.Contains(selectingKinds, key.Kind) {
		m.Selectors.set(key, SelectorsOf(object, spec))
	}
	if key.Kind == resource.AuthorizationPolicy || key.Kind == resource.RequestAuthentication {
		m.touchReferred(key)
		defer m.touchReferred(key)
	}
	switch key.Kind {
	case resource.ServiceEntry:
		m.setEntry(key, object, specAs[*networking.ServiceEntry](spec))
		m.refreshServing(key)
		if m.Selectors.count[Selector{attribute: targetAttribute, name: key.FullName()}] > 0 {
			m.securityChanged()
		}
	case resource.WorkloadEntry:
		m.setWorkload(key, object, specAs[*networking.WorkloadEntry](spec))
	case resource.WorkloadGroup:
		m.setGroup(key, object, specAs[*networking.WorkloadGroup](spec))
	case resource.Gateway:
		m.setGateway(key, object, specAs[*networking.Gateway](spec))
	case resource.Sidecar:
		m.setSidecar(key, object, specAs[*networking.Sidecar](spec))
	case resource.MeshConfig:
		m.setConfig(key, object, specAs[*meshv1alpha1.MeshConfig](spec))
	case resource.Telemetry:
		m.telemetries.set(key, object, spec)
		m.extensionsChanged()
	case resource.AuthorizationPolicy:
		m.authorizations.set(key, object, spec)
		m.securityChanged()
	case resource.RequestAuthentication:
		m.tokens.set(key, object, spec)
		m.referencedHosts = nil
		m.securityChanged()
	case resource.PeerAuthentication:
		m.peers.set(key, object, spec)
		m.touchMutual(key.Namespace)
		m.securityChanged()
	case resource.EnvoyFilter, resource.WasmPlugin:
		m.setExtension(key, object, spec)
	case resource.DestinationRule:
		hosts := m.Policies.set(key, newDestinationRule(object, specAs[*networking.DestinationRule](spec)))
		m.touch(hosts, true)
		m.touchIngress(hosts)
	case resource.VirtualService:
		delete(m.merged.byKey, key)
		m.touchTargets(key)
		m.touch(m.Virtuals.set(key, newVirtualService(object, specAs[*networking.VirtualService](spec))), true)
		m.touchTargets(key)
		m.touched[delegatePrefix+key.FullName()] = true
	}
	return err
}

// specAs returns the message of a kind, or nil.
func specAs[T any](spec any) T {
	m, _ := spec.(T)
	return m
}

// touchTargets adds the hosts that a VirtualService routes to, and the targets of those that delegate to it: clients
// with a Sidecar may see them only by these routes.
func (m *Mesh) touchTargets(key resource.Key) {
	if len(m.sidecars) == 0 {
		return
	}
	if virtualService := m.Virtuals.ByKey[key]; virtualService != nil {
		m.touch(virtualService.DependsOn, true)
		for _, d := range m.delegates(virtualService) {
			m.touch(d.DependsOn, true)
		}
	}
	for _, root := range m.Virtuals.byDestination[delegatePrefix+key.FullName()] {
		m.touch(root.DependsOn, true)
	}
}

// touch adds hosts to m.touched, and the known hosts that a wildcard among them matches: those of services only if
// services is true.
func (m *Mesh) touch(hosts []string, services bool) {
	for _, host := range hosts {
		m.touched[host] = true
		if !model.IsWildcard(host) {
			continue
		}
		if services {
			touchMatches(host, m.Hosts, m.touched)
		}
		touchMatches(host, m.Virtuals.exact, m.touched)
		touchMatches(host, m.gatewayHosts, m.touched)
	}
}

// Touched returns the hosts that changes since the last call concern, and the hosts that depend on these: those with
// routes to them, and wildcards that match them. All clients evaluate providers, security objects and plugins again if
// these refer to a touched host. If only the endpoints of a host have changed, no other host depends on that: a route
// depends on a host, its ports and its policy.
func (m *Mesh) Touched() map[string]bool {
	m.touchReferencedHosts()
	for _, host := range slices.Collect(maps.Keys(m.touched)) {
		for _, virtualService := range m.Virtuals.byDestination[host] {
			m.touch(virtualService.Hosts, forMesh(virtualService.Spec))
			for _, root := range m.Virtuals.byDestination[delegatePrefix+virtualService.Key.FullName()] {
				m.touch(root.Hosts, forMesh(root.Spec))
			}
		}
		for wildcard := range m.Virtuals.forHost(host) {
			m.touched[wildcard] = true
		}
	}
	touched := m.touched
	maps.Copy(touched, m.moved)
	m.touched = make(map[string]bool)
	m.moved = make(map[string]bool)
	return touched
}

func touchMatches[V any](wildcard string, hosts map[string]V, touched map[string]bool) {
	for host := range hosts {
		if model.Matches(wildcard, host) {
			touched[host] = true
		}
	}
}

func (m *Mesh) setEntry(key resource.Key, object *resource.Resource, spec *networking.ServiceEntry) {
	touched := m.touched
	if spec != nil {
		m.Selectors.add(selectorsOfEntry(key.Namespace, spec.GetExportTo()))
	}
	if previous := m.Entries[key]; previous != nil {
		m.Selectors.removeAtSettle(selectorsOfEntry(key.Namespace, previous.Spec.GetExportTo()))
		if spec != nil && previous.created.Equal(object.Created()) && proto.Equal(previous.Spec, spec) {
			touched = m.moved
		}
		previous.touch(touched)
		for _, host := range previous.Hosts() {
			delete(m.Hosts[host], key)
			if len(m.Hosts[host]) == 0 {
				delete(m.Hosts, host)
			}
		}
		delete(m.Entries, key)
		m.editNamespace(key.Namespace, func(namespace *space) { delete(namespace.selectors, key) })
	}
	if spec == nil {
		return
	}
	created := &entry{Key: key, created: object.Created(), version: object.Version(), object: object, Spec: spec}
	m.Entries[key] = created
	created.touch(touched)
	for _, host := range created.Hosts() {
		if m.Hosts[host] == nil {
			m.Hosts[host] = make(map[resource.Key]*entry)
		}
		m.Hosts[host][key] = created
	}
	if spec.GetWorkloadSelector() == nil {
		return
	}
	created.selected = make(map[string]*workload)
	m.editNamespace(key.Namespace, func(namespace *space) {
		namespace.selectors[key] = created
		for _, workload := range namespace.workloads {
			if created.selects(workload) {
				created.selected[workload.name] = workload
			}
		}
	})
}

func newWorkload(object *resource.Resource, spec *networking.WorkloadEntry) *workload {
	labels := make(map[string]string)
	maps.Copy(labels, spec.GetLabels())
	maps.Copy(labels, object.Labels())
	return &workload{
		name: object.Key().Name, version: object.Version(), labels: labels, spec: spec,
		registeredBy: object.Annotations()[registeredBy],
	}
}

func (m *Mesh) setWorkload(key resource.Key, object *resource.Resource, spec *networking.WorkloadEntry) {
	m.editNamespace(key.Namespace, func(namespace *space) {
		var created *workload
		if spec != nil {
			created = newWorkload(object, spec)
			created.group = namespace.groupOf(created)
			namespace.workloads[key.Name] = created
		} else {
			delete(namespace.workloads, key.Name)
		}
		for _, entry := range namespace.selectors {
			_, wasSelected := entry.selected[key.Name]
			selected := created != nil && entry.selects(created)
			if selected {
				entry.selected[key.Name] = created
			} else {
				delete(entry.selected, key.Name)
			}
			if wasSelected || selected {
				entry.touch(m.moved)
				m.refreshServing(entry.Key)
			}
		}
	})
}

// editNamespace calls edit with a namespace, and drops the namespace if it is empty afterwards.
func (m *Mesh) editNamespace(namespace string, edit func(*space)) {
	content := m.spaces[namespace]
	if content == nil {
		content = &space{
			selectors: make(map[resource.Key]*entry), workloads: make(map[string]*workload),
			groups: make(map[string]*group),
		}
		m.spaces[namespace] = content
	}
	edit(content)
	if len(content.selectors)+len(content.workloads)+len(content.groups) == 0 {
		delete(m.spaces, namespace)
	}
}

// Hosts returns the hosts of the entry, in lower case.
func (e *entry) Hosts() []string {
	hosts := make([]string, 0, len(e.Spec.GetHosts()))
	for _, host := range e.Spec.GetHosts() {
		hosts = append(hosts, strings.ToLower(host))
	}
	return hosts
}

func (e *entry) touch(touched map[string]bool) {
	for _, host := range e.Hosts() {
		touched[host] = true
	}
}

// selects reports whether the workloadSelector selects a workload of the same namespace. An empty selector selects
// none.
func (e *entry) selects(w *workload) bool {
	wanted := e.Spec.GetWorkloadSelector().GetLabels()
	return len(wanted) > 0 && model.SelectsLabels(wanted, w.labels)
}

// endpoints returns the endpoints of the entry: its own, or the workloads that it selects, in order of name.
func (e *entry) endpoints() []model.Endpoint {
	var list []model.Endpoint
	if e.selected == nil {
		_, endpoints, _ := decodeEntry(e.object) // Set has decoded it already
		list = make([]model.Endpoint, len(endpoints))
		for i, l := range endpoints {
			list[i] = model.Endpoint{Address: l.address, Spec: l.spec, Labels: l.spec.GetLabels(), Owner: e.Key, Index: i}
		}
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(e.selected)) {
		workload := e.selected[name]
		endpoint := model.Endpoint{
			Workload: name, Namespace: e.Key.Namespace, Address: workload.spec.GetAddress(), Spec: workload.spec,
			Labels: workload.labels, Owner: e.Key,
		}
		if workload.group != nil {
			endpoint.Group = &workload.group.WorkloadGroup
		}
		list = append(list, endpoint)
	}
	return list
}

// VisibleTo reports whether the entry is exported to the namespace.
func (e *entry) VisibleTo(namespace string) bool {
	return model.VisibleTo(e.Spec.GetExportTo(), e.Key.Namespace, namespace)
}

func (e *entry) precedence(client string) model.Precedence {
	return model.PrecedenceOf(e.Key, e.created, e.Spec.GetExportTo(), client)
}

// Differing returns the keys of the objects for Envoys that differ between two views.
func Differing(last, next memstore.Snapshot) (keys []resource.Key) {
	for _, kind := range Kinds {
		for object := range next.List(kind, "") {
			if old := last.Get(object.Key()); old == nil || old.Version() != object.Version() {
				keys = append(keys, object.Key())
			}
		}
		for object := range last.List(kind, "") {
			if next.Get(object.Key()) == nil {
				keys = append(keys, object.Key())
			}
		}
	}
	return keys
}

// Kinds are the kinds of objects in a mesh.
var Kinds = []resource.Kind{
	resource.ServiceEntry, resource.WorkloadEntry, resource.WorkloadGroup, resource.DestinationRule,
	resource.VirtualService, resource.Gateway, resource.Sidecar, resource.MeshConfig, resource.Telemetry,
	resource.AuthorizationPolicy, resource.RequestAuthentication, resource.PeerAuthentication,
	resource.EnvoyFilter, resource.WasmPlugin,
}

// Size estimates the number of AllHosts.
func (m *Mesh) Size() int { return len(m.Hosts) + len(m.Virtuals.ByKey) + len(m.gatewayHosts) }

// AllHosts returns the hosts of all services and routes.
func (m *Mesh) AllHosts() map[string]bool {
	hosts := map[string]bool{model.GatewayPseudoHost: true, model.InboundPseudoHost: true}
	for host := range m.Hosts {
		hosts[host] = true
	}
	for _, v := range m.Virtuals.ByKey {
		for _, host := range v.Hosts {
			hosts[host] = true
		}
	}
	for host := range m.gatewayHosts {
		hosts[host] = true
	}
	return hosts
}
