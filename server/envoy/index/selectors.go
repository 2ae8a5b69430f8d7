package index

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

// A client sends labels, a namespace, a locality and a folder of credentials, and may invent them. Its profile keeps only those by which
// some object selects clients, so that clients share a profile unless an object distinguishes them. The cost of profiles is bounded, see
// model.MaxHostCost.

// attribute is a property of clients by which objects select them.
type attribute int

const (
	labelAttribute      attribute = iota
	namespaceAttribute            // each object selects by its own namespace and those that it names
	localityAttribute             // some policy ranks endpoints by locality
	credentialAttribute           // some object names a credential, which is in the client's folder
	versionAttribute              // some patch is for versions
	metadataAttribute             // some patch is for clients that say something of themselves
	ingressAttribute              // some Sidecar of a namespace has ingress listeners; for those atAddress, their value says so
	targetAttribute               // some policy refers to a Service or ServiceEntry
	attributes
)

// Selector is a condition by which an object selects clients: a label with a value, or with any value; a namespace; or an attribute as a
// whole.
type Selector struct {
	attribute   attribute
	name, value string
	any         bool
}

// Selectors is a set of conditions.
type Selectors map[Selector]struct{}

// otherNamespaces is the namespace of all clients whose namespace no object is in or names. It is not a valid name.
const otherNamespaces = "other namespaces"

// SelectingKinds are the kinds of objects, besides ServiceEntry, that select clients.
var SelectingKinds = []resource.Kind{
	resource.VirtualService, resource.DestinationRule, resource.Gateway, resource.Sidecar, resource.Telemetry,
	resource.AuthorizationPolicy, resource.RequestAuthentication, resource.PeerAuthentication,
	resource.EnvoyFilter, resource.WasmPlugin,
}

// SelectorsOf returns the conditions of an object, or nil without one. Add new kinds that select clients here. For a ServiceEntry see
// SelectorsOfEntry.
func SelectorsOf(r *resource.Resource, spec any) Selectors {
	if r == nil {
		return nil
	}
	all := make(Selectors)
	all.namespaces(r.Key().Namespace)
	switch spec := spec.(type) {
	case *networking.VirtualService:
		all.namespaces(spec.GetExportTo()...)
		all.routes(spec)
	case *networking.DestinationRule:
		all.namespaces(spec.GetExportTo()...)
		p := &model.Policy{Traffic: spec.GetTrafficPolicy(), Subsets: spec.GetSubsets()}
		all.failoverPriorities(p)
		if dependsOnLocality(p) {
			all[Selector{attribute: localityAttribute}] = struct{}{}
		}
		for s := range trafficPolicies(p) {
			all.credentials(s.GetTls().GetCredentialName(), s.GetTls().GetCaCertCredentialName())
		}
	case *networking.Gateway:
		all.labels(spec.GetSelector())
		for _, server := range spec.GetServers() {
			all.credentials(server.GetTls().GetCredentialName(), server.GetTls().GetCaCertCredentialName())
			all.credentials(server.GetTls().GetCredentialNames()...)
		}
	case *networking.Sidecar:
		all.labels(spec.GetWorkloadSelector().GetLabels())
		all.ingress(r.Key().Namespace, spec.GetIngress())
	case *networking.EnvoyFilter:
		all.targets(r.Key().Namespace, &extend.Decoded{EnvoyFilter: spec})
		all.proxies(spec)
	case selectable: // security objects, WasmPlugins and Telemetries
		all.targets(r.Key().Namespace, spec)
	}
	return all
}

// SelectorsOfEntry returns the conditions of a ServiceEntry.
func SelectorsOfEntry(namespace string, exportTo []string) Selectors {
	all := make(Selectors, 1+len(exportTo))
	all.namespaces(namespace)
	all.namespaces(exportTo...)
	return all
}

// Labels returns the labels by which an object selects clients.
func (s Selectors) Labels() map[string]string {
	all := make(map[string]string)
	for of := range s {
		if of.attribute == labelAttribute && !of.any {
			all[of.name] = of.value
		}
	}
	return all
}

func (s Selectors) labels(wanted map[string]string) {
	for name, value := range wanted {
		s[Selector{name: name, value: value}] = struct{}{}
	}
}

func (s Selectors) namespaces(names ...string) {
	for _, name := range names {
		s[Selector{attribute: namespaceAttribute, name: name}] = struct{}{}
	}
}

func (s Selectors) credentials(names ...string) {
	if slices.ContainsFunc(names, model.IsCredential) {
		s[Selector{attribute: credentialAttribute}] = struct{}{}
	}
}

// atAddress is the value of ingress listeners that depend on the addresses of clients with or without redirection.
func atAddress(captures bool) string { return strconv.FormatBool(captures) }

// ingress adds the ingress listeners of a Sidecar.
func (s Selectors) ingress(namespace string, listeners []*networking.IstioIngressListener) {
	for _, i := range listeners {
		s[Selector{attribute: ingressAttribute, name: namespace}] = struct{}{}
		for _, captures := range []bool{false, true} {
			if needsAddress(i, captures) {
				s[Selector{attribute: ingressAttribute, name: namespace, value: atAddress(captures)}] = struct{}{}
			}
		}
	}
}

// routes adds the labels and namespaces of clients that the routes of a VirtualService match.
func (s Selectors) routes(spec *networking.VirtualService) {
	for _, h := range spec.GetHttp() {
		addSources(s, h.GetMatch())
	}
	for _, r := range spec.GetTls() {
		addSources(s, r.GetMatch())
	}
	for _, r := range spec.GetTcp() {
		addSources(s, r.GetMatch())
	}
}

func addSources[M model.Attributes](s Selectors, matches []M) {
	for _, m := range matches {
		s.labels(m.GetSourceLabels())
		if m.GetSourceNamespace() != "" {
			s.namespaces(m.GetSourceNamespace())
		}
	}
}

// failoverPriorities adds the labels by which a policy ranks endpoints, and reports whether there are any.
func (s Selectors) failoverPriorities(p *model.Policy) (added bool) {
	for t := range trafficPolicies(p) {
		for _, text := range t.GetLoadBalancer().GetLocalityLbSetting().GetFailoverPriority() {
			name, value, given := strings.Cut(text, "=")
			s[Selector{name: name, value: value, any: !given}] = struct{}{}
			added = true
		}
	}
	return added
}

// dependsOnLocality reports whether a policy ranks endpoints by the locality or the labels of the client.
func dependsOnLocality(p *model.Policy) bool {
	for t := range trafficPolicies(p) {
		if t.GetLoadBalancer().GetLocalityLbSetting() != nil || t.GetOutlierDetection() != nil {
			return true
		}
	}
	return false
}

// trafficPolicy is the common part of TrafficPolicy and PortTrafficPolicy.
type trafficPolicy interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetOutlierDetection() *networking.OutlierDetection
	GetTls() *networking.ClientTLSSettings
}

// trafficPolicies yields the traffic policies of a policy: its own and those of subsets, each followed by those of its ports.
func trafficPolicies(p *model.Policy) iter.Seq[trafficPolicy] {
	return func(yield func(trafficPolicy) bool) {
		withPorts := func(t *networking.TrafficPolicy) bool {
			for _, port := range t.GetPortLevelSettings() {
				if !yield(port) {
					return false
				}
			}
			return yield(t)
		}
		if !withPorts(p.Traffic) {
			return
		}
		for _, subset := range p.Subsets {
			if !withPorts(subset.GetTrafficPolicy()) {
				return
			}
		}
	}
}

// SelectorIndex counts the objects with each condition. It is not safe for concurrent use.
type SelectorIndex struct {
	byObject map[resource.Key]Selectors
	count    map[Selector]int
	kinds    [attributes]int // conditions of each attribute
	Changes  uint64          // how often a condition got its first object, or lost its last one
}

func newSelectorIndex() *SelectorIndex {
	return &SelectorIndex{byObject: make(map[resource.Key]Selectors), count: make(map[Selector]int)}
}

// set replaces the conditions of an object.
func (x *SelectorIndex) set(key resource.Key, now Selectors) {
	x.Add(now)
	x.Remove(x.byObject[key])
	if x.byObject[key] = now; len(now) == 0 {
		delete(x.byObject, key)
	}
}

// Add counts conditions once more.
func (x *SelectorIndex) Add(all Selectors) {
	for s := range all {
		if x.count[s]++; x.count[s] == 1 {
			x.kinds[s.attribute]++
			x.Changes++
		}
	}
}

// Remove counts conditions once less.
func (x *SelectorIndex) Remove(all Selectors) {
	for s := range all {
		if x.count[s]--; x.count[s] == 0 {
			x.kinds[s.attribute]--
			x.Changes++
			delete(x.count, s)
		}
	}
}

// Narrow removes from a profile the attributes that no object selects by. An identity stays: mutual TLS needs no object that asks for it.
func (x *SelectorIndex) Narrow(p *model.Profile) {
	p.Labels = labelsThat(p, func(s Selector) bool { return x.count[s] > 0 })
	p.Labelled = p.Labelled && x.kinds[labelAttribute] > 0
	if x.count[Selector{attribute: namespaceAttribute, name: p.Namespace}] == 0 {
		p.Namespace = otherNamespaces
	}
	if x.kinds[localityAttribute] == 0 {
		p.Locality = model.Locality{}
	}
	if x.kinds[credentialAttribute] == 0 {
		p.Credentials = ""
	}
	if x.kinds[versionAttribute] == 0 {
		p.Version = ""
	}
	if p.Metadata != "" {
		all := model.LabelMapOf(p.Metadata)
		maps.DeleteFunc(all, func(name, value string) bool {
			return x.count[Selector{attribute: metadataAttribute, name: name, value: value}] == 0
		})
		p.Metadata = model.LabelText(all)
	}
}

// labelsThat returns the labels of a profile that a condition selects, as text.
func labelsThat(p *model.Profile, selected func(Selector) bool) string {
	all := p.LabelMap()
	maps.DeleteFunc(all, func(name, value string) bool {
		return !selected(Selector{name: name, any: true}) && !selected(Selector{name: name, value: value})
	})
	return model.LabelText(all)
}

var fieldExportTo = (&networking.ServiceEntry{}).ProtoReflect().Descriptor().Fields().ByName("export_to").Number()

// ExportedTo returns the field export_to of an encoded ServiceEntry, without decoding its endpoints.
func ExportedTo(body []byte) (exportTo []string) {
	for len(body) > 0 {
		field, number, value, err := nextField(body)
		if err != nil {
			return exportTo
		}
		if number == fieldExportTo {
			exportTo = append(exportTo, string(value))
		}
		body = body[len(field):]
	}
	return exportTo
}
