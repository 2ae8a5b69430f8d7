package index

import (
	"maps"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Clients tell of labels that say which of many they are, such as the number of a pod, of namespaces and of places, and may make them up.
// So that those share what clients share, a profile has just what objects look at: what objects do not name does not get as far as
// translation.

// Label is what an object looks at: whether clients have a label with a value, or, if any, which value they have; or another aspect of
// them.
type Label struct {
	Of          aspect
	name, value string
	any         bool
}

// Labels are what is looked at.
type Labels map[Label]struct{}

func (l Labels) add(wanted map[string]string) {
	for name, value := range wanted {
		l[Label{name: name, value: value}] = struct{}{}
	}
}

// Selecting are the kinds of objects that look at labels of clients.
var Selecting = []resource.Kind{resource.VirtualService, resource.DestinationRule, resource.Gateway, resource.Sidecar, resource.Telemetry}

// LookedAt returns what an object with a spec looks at, or nil if there is none. An object of a kind that is new here, and selects clients
// by labels, finds none of them unless it is added. What ServiceEntries look at is lookedAtByEntry.
func LookedAt(r *resource.Resource, spec any) Labels {
	if r == nil {
		return nil
	}
	all := make(Labels)
	all.namespaces(r.Key().Namespace)
	switch spec := spec.(type) {
	case *networking.VirtualService:
		all.namespaces(spec.GetExportTo()...)
		all.routes(spec)
	case *networking.DestinationRule:
		all.namespaces(spec.GetExportTo()...)
		p := &model.Policy{Traffic: spec.GetTrafficPolicy(), Subsets: spec.GetSubsets()}
		all.policy(p)
		all.places(p)
		all.credentials(credentials(p))
	case *networking.Gateway:
		all.add(spec.GetSelector())
		for _, server := range spec.GetServers() {
			all.credentials(credentialsOf(server.GetTls()))
		}
	case *networking.Sidecar:
		all.add(spec.GetWorkloadSelector().GetLabels())
	case *telemetryv1alpha1.Telemetry:
		all.add(spec.GetSelector().GetMatchLabels())
	}
	return all
}

// routes adds the labels by which a VirtualService tells clients apart.
func (l Labels) routes(spec *networking.VirtualService) {
	for _, h := range spec.GetHttp() {
		addSources(l, h.GetMatch())
	}
	for _, r := range spec.GetTls() {
		addSources(l, r.GetMatch())
	}
	for _, r := range spec.GetTcp() {
		addSources(l, r.GetMatch())
	}
}

func addSources[M model.Attributes](l Labels, matches []M) {
	for _, m := range matches {
		l.add(m.GetSourceLabels())
		if m.GetSourceNamespace() != "" {
			l.namespaces(m.GetSourceNamespace())
		}
	}
}

// policy adds the labels by which a policy ranks endpoints, and says whether there are some.
func (l Labels) policy(p *model.Policy) (some bool) {
	of := func(lb *networking.LoadBalancerSettings) {
		for _, text := range lb.GetLocalityLbSetting().GetFailoverPriority() {
			name, value, given := strings.Cut(text, "=")
			l[Label{name: name, value: value, any: !given}] = struct{}{}
			some = true
		}
	}
	each := func(t *networking.TrafficPolicy) {
		of(t.GetLoadBalancer())
		for _, s := range t.GetPortLevelSettings() {
			of(s.GetLoadBalancer())
		}
	}
	each(p.Traffic)
	for _, s := range p.Subsets {
		each(s.GetTrafficPolicy())
	}
	return some
}

// SelectorIndex count the objects that look at each label. It is not safe for concurrent use.
type SelectorIndex struct {
	of    map[resource.Key]Labels
	count map[Label]int
	Kinds [aspects]int // how many there are of each aspect
	Grown uint64       // how often something was looked at that nobody had looked at
}

func newSelectorIndex() *SelectorIndex {
	return &SelectorIndex{of: make(map[resource.Key]Labels), count: make(map[Label]int)}
}

// set notes what an object looks at.
func (l *SelectorIndex) set(key resource.Key, now Labels) {
	l.Hold(now)
	l.Release(l.of[key])
	if l.of[key] = now; len(now) == 0 {
		delete(l.of, key)
	}
}

// Hold counts labels once more.
func (l *SelectorIndex) Hold(all Labels) {
	for of := range all {
		if l.count[of]++; l.count[of] == 1 {
			l.Kinds[of.Of]++
			if of.Of != ofSites || l.Kinds[OfPlaces] > 0 {
				l.Grown++
			}
		}
	}
}

// Release counts them once less.
func (l *SelectorIndex) Release(all Labels) {
	for of := range all {
		if l.count[of]--; l.count[of] == 0 {
			l.Kinds[of.Of]--
			delete(l.count, of)
		}
	}
}

// Narrow leaves of a client what objects look at.
func (l *SelectorIndex) Narrow(p *model.Profile) {
	p.Labels = labelsThat(p, func(of Label) bool { return l.count[of] > 0 })
	p.Labelled = p.Labelled && l.Kinds[ofLabels] > 0
	if l.count[Label{Of: ofNamespaces, name: p.Namespace}] == 0 {
		p.Namespace = elsewhere
	}
	p.Place = l.reduce(p.Place)
	if l.Kinds[ofCredentials] == 0 {
		p.Credentials = ""
	}
}

// labelsOf returns those of the labels that are looked at, as a text.
func labelsOf(p *model.Profile, some Labels) string {
	return labelsThat(p, func(of Label) bool { _, ok := some[of]; return ok })
}

func labelsThat(p *model.Profile, isLookedAt func(Label) bool) string {
	all := p.LabelMap()
	maps.DeleteFunc(all, func(name, value string) bool {
		return !isLookedAt(Label{name: name, any: true}) && !isLookedAt(Label{name: name, value: value})
	})
	return model.LabelText(all)
}
