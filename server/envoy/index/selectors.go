package index

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

// A client sends labels, a namespace, a locality and a folder of credentials, and may invent them. Its profile keeps
// only those that some object selects by, so that clients share a profile unless an object distinguishes them. The cost
// of profiles is bounded, see model.MaxHostCost.

// attribute is a property of clients that objects select by.
type attribute int

const (
	labelAttribute      attribute = iota
	namespaceAttribute            // each object selects by its own namespace and those that it names
	localityAttribute             // some policy ranks endpoints by locality
	credentialAttribute           // some object names a credential, which is in the client's folder
	versionAttribute              // some patch is for versions
	metadataAttribute             // some patch is for clients with some metadata
	// some Sidecar of a namespace has ingress listeners; the value is captureValue for those that need an address
	ingressAttribute
	targetAttribute // some policy refers to a Service or ServiceEntry
	attributes
)

// Selector is a condition on clients: a label with a value, or with any value; a namespace; or the use of an attribute.
type Selector struct {
	attribute   attribute
	name, value string
	any         bool
}

// Selectors is a set of conditions.
type Selectors map[Selector]bool

// otherNamespaces stands for the namespaces that no object belongs to or names. It is not a valid name.
const otherNamespaces = "other namespaces"

// selectingKinds are the kinds of objects, except for ServiceEntry, that select clients.
var selectingKinds = []resource.Kind{
	resource.VirtualService, resource.DestinationRule, resource.Gateway, resource.Sidecar, resource.Telemetry,
	resource.AuthorizationPolicy, resource.RequestAuthentication, resource.PeerAuthentication,
	resource.EnvoyFilter, resource.WasmPlugin,
}

// SelectorsOf returns the conditions of an object, or nil for a nil object. Add new kinds that select clients here. For
// a ServiceEntry see selectorsOfEntry.
func SelectorsOf(object *resource.Resource, spec any) Selectors {
	if object == nil {
		return nil
	}
	conditions := make(Selectors)
	conditions.namespaces(object.Key().Namespace)
	switch spec := spec.(type) {
	case *networking.VirtualService:
		conditions.namespaces(spec.GetExportTo()...)
		conditions.routes(spec)
	case *networking.DestinationRule:
		conditions.namespaces(spec.GetExportTo()...)
		policy := &model.Policy{Traffic: spec.GetTrafficPolicy(), Subsets: spec.GetSubsets()}
		conditions.failoverPriorities(policy)
		if dependsOnLocality(policy) {
			conditions[Selector{attribute: localityAttribute}] = true
		}
		for _, s := range trafficPolicies(policy) {
			conditions.credentials(s.GetTls().GetCredentialName(), s.GetTls().GetCaCertCredentialName())
		}
	case *networking.Gateway:
		conditions.labels(spec.GetSelector())
		for _, server := range spec.GetServers() {
			conditions.credentials(server.GetTls().GetCredentialName(), server.GetTls().GetCaCertCredentialName())
			conditions.credentials(server.GetTls().GetCredentialNames()...)
		}
	case *networking.Sidecar:
		conditions.labels(spec.GetWorkloadSelector().GetLabels())
		conditions.ingress(object.Key().Namespace, spec.GetIngress())
	case *networking.EnvoyFilter:
		conditions.targets(object.Key().Namespace, &extend.Decoded{EnvoyFilter: spec})
		conditions.proxies(spec)
	case selectable: // security objects, WasmPlugins and Telemetries
		conditions.targets(object.Key().Namespace, spec)
	}
	return conditions
}

// SelectorsIn returns the conditions of the objects of keys in a view.
func SelectorsIn(keys []resource.Key, view memstore.Snapshot) Selectors {
	conditions := make(Selectors)
	for _, key := range keys {
		object := view.Get(key)
		switch {
		case object == nil:
		case key.Kind == resource.ServiceEntry:
			maps.Copy(conditions, selectorsOfEntry(key.Namespace, exportedTo(object.Body())))
		case slices.Contains(selectingKinds, key.Kind):
			if spec, err := object.Spec(); err == nil { // else it is not served
				maps.Copy(conditions, SelectorsOf(object, spec))
			}
		}
	}
	return conditions
}

// selectorsOfEntry returns the conditions of a ServiceEntry.
func selectorsOfEntry(namespace string, exportTo []string) Selectors {
	conditions := make(Selectors, 1+len(exportTo))
	conditions.namespaces(namespace)
	conditions.namespaces(exportTo...)
	return conditions
}

// Labels returns the labels that an object selects clients by.
func (s Selectors) Labels() map[string]string {
	labels := make(map[string]string)
	for selector := range s {
		if selector.attribute == labelAttribute && !selector.any {
			labels[selector.name] = selector.value
		}
	}
	return labels
}

func (s Selectors) labels(wanted map[string]string) {
	for name, value := range wanted {
		s[Selector{name: name, value: value}] = true
	}
}

func (s Selectors) namespaces(names ...string) {
	for _, name := range names {
		s[Selector{attribute: namespaceAttribute, name: name}] = true
	}
}

func (s Selectors) credentials(names ...string) {
	if slices.ContainsFunc(names, model.IsCredential) {
		s[Selector{attribute: credentialAttribute}] = true
	}
}

// captureValue is the value of ingress listeners that depend on the addresses of clients with or without redirection.
func captureValue(captures bool) string { return strconv.FormatBool(captures) }

// ingress adds the ingress listeners of a Sidecar.
func (s Selectors) ingress(namespace string, listeners []*networking.IstioIngressListener) {
	for _, i := range listeners {
		s[Selector{attribute: ingressAttribute, name: namespace}] = true
		for _, captures := range []bool{false, true} {
			if needsAddress(i, captures) {
				s[Selector{attribute: ingressAttribute, name: namespace, value: captureValue(captures)}] = true
			}
		}
	}
}

// routes adds the labels and namespaces of clients that the routes of a VirtualService match.
func (s Selectors) routes(spec *networking.VirtualService) {
	for _, m := range model.RouteMatches(spec) {
		s.labels(m.GetSourceLabels())
		if m.GetSourceNamespace() != "" {
			s.namespaces(m.GetSourceNamespace())
		}
	}
}

// failoverPriorities adds the labels that a policy ranks endpoints by, and reports whether it added any.
func (s Selectors) failoverPriorities(policy *model.Policy) (added bool) {
	for _, t := range trafficPolicies(policy) {
		for _, text := range t.GetLoadBalancer().GetLocalityLbSetting().GetFailoverPriority() {
			name, value, given := strings.Cut(text, "=")
			s[Selector{name: name, value: value, any: !given}] = true
			added = true
		}
	}
	return added
}

// dependsOnLocality reports whether a policy ranks endpoints by the locality or the labels of the client.
func dependsOnLocality(policy *model.Policy) bool {
	for _, t := range trafficPolicies(policy) {
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

// trafficPolicies returns the traffic policies of a service and of its subsets, each after those of its ports.
func trafficPolicies(policy *model.Policy) (list []trafficPolicy) {
	addPolicy := func(traffic *networking.TrafficPolicy) {
		for _, port := range traffic.GetPortLevelSettings() {
			list = append(list, port)
		}
		list = append(list, traffic)
	}
	addPolicy(policy.Traffic)
	for _, subset := range policy.Subsets {
		addPolicy(subset.GetTrafficPolicy())
	}
	return list
}

// SelectorIndex counts the objects with each condition: until Settle, former and expected versions of objects, too. It
// is not safe for concurrent use.
type SelectorIndex struct {
	byObject map[resource.Key]Selectors
	count    map[Selector]int
	kinds    [attributes]int // conditions of each attribute
	ending   []Selectors     // that count until Settle
	changed  bool            // a condition got its first object, or lost its last, after the last call of TakeChanged
}

func newSelectorIndex() *SelectorIndex {
	return &SelectorIndex{byObject: make(map[resource.Key]Selectors), count: make(map[Selector]int)}
}

// set replaces the conditions of an object. The old ones count until Settle.
func (i *SelectorIndex) set(key resource.Key, conditions Selectors) {
	i.add(conditions)
	i.removeAtSettle(i.byObject[key])
	if len(conditions) == 0 {
		delete(i.byObject, key)
		return
	}
	i.byObject[key] = conditions
}

// Expect adds the conditions of objects that the mesh is about to get. They count until Settle.
func (i *SelectorIndex) Expect(conditions Selectors) {
	i.add(conditions)
	i.removeAtSettle(conditions)
}

func (i *SelectorIndex) add(conditions Selectors) {
	for s := range conditions {
		i.count[s]++
		if i.count[s] == 1 {
			i.kinds[s.attribute]++
			i.changed = true
		}
	}
}

func (i *SelectorIndex) removeAtSettle(conditions Selectors) {
	if len(conditions) > 0 {
		i.ending = append(i.ending, conditions)
	}
}

// Settle removes the conditions of replaced objects, and those of Expect.
func (i *SelectorIndex) Settle() {
	for _, conditions := range i.ending {
		for selector := range conditions {
			i.count[selector]--
			if i.count[selector] == 0 {
				i.kinds[selector.attribute]--
				i.changed = true
				delete(i.count, selector)
			}
		}
	}
	i.ending = nil
}

// TakeChanged reports whether the conditions that divide clients changed after the last call.
func (i *SelectorIndex) TakeChanged() bool {
	changed := i.changed
	i.changed = false
	return changed
}

// Narrow removes from a profile the attributes that no object selects by. An identity stays: mutual TLS needs no
// object.
func (i *SelectorIndex) Narrow(profile *model.Profile) {
	profile.Labels = filterLabels(profile, func(s Selector) bool { return i.count[s] > 0 })
	profile.LabelsMatter = profile.LabelsMatter && i.kinds[labelAttribute] > 0
	if i.count[Selector{attribute: namespaceAttribute, name: profile.Namespace}] == 0 {
		profile.Namespace = otherNamespaces
	}
	if i.kinds[localityAttribute] == 0 {
		profile.Locality = model.Locality{}
	}
	if i.kinds[credentialAttribute] == 0 {
		profile.Credentials = ""
	}
	if i.kinds[versionAttribute] == 0 {
		profile.Version = ""
	}
	if profile.Metadata != "" {
		metadata := model.LabelMapOf(profile.Metadata)
		maps.DeleteFunc(metadata, func(name, value string) bool {
			return i.count[Selector{attribute: metadataAttribute, name: name, value: value}] == 0
		})
		profile.Metadata = model.LabelText(metadata)
	}
}

// filterLabels returns the labels of a profile that a condition selects, as text.
func filterLabels(profile *model.Profile, selected func(Selector) bool) string {
	labels := profile.LabelMap()
	maps.DeleteFunc(labels, func(name, value string) bool {
		return !selected(Selector{name: name, any: true}) && !selected(Selector{name: name, value: value})
	})
	return model.LabelText(labels)
}

var fieldExportTo = (&networking.ServiceEntry{}).ProtoReflect().Descriptor().Fields().ByName("export_to").Number()

// exportedTo returns the field export_to of an encoded ServiceEntry, without decoding its endpoints.
func exportedTo(body []byte) (exportTo []string) {
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
