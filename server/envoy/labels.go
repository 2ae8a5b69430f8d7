package envoy

import (
	"iter"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
)

// Clients tell of labels that say which of many they are, such as the number of a pod, of namespaces and of places, and may make them up. So that those share
// what they are told who are told the same, a profile has just what objects look at: what objects do not name does not get as far as translation.

// label is what an object looks at: whether clients have a label with a value, or, if any, which value they have; or another aspect of them.
type label struct {
	of          aspect
	name, value string
	any         bool
}

// labels are what is looked at.
type labels map[label]struct{}

func (l labels) add(wanted map[string]string) {
	for name, value := range wanted {
		l[label{name: name, value: value}] = struct{}{}
	}
}

// selecting are the kinds of objects that look at labels of clients.
var selecting = []resource.Kind{resource.VirtualService, resource.DestinationRule, resource.Gateway, resource.Sidecar, resource.Telemetry}

// lookedAt returns what an object with a spec looks at, or nil if there is none. An object of a kind that is new here, and selects clients by labels, finds none of
// them unless it is added. What ServiceEntries look at is lookedAtByEntry.
func lookedAt(r *resource.Resource, spec any) labels {
	if r == nil {
		return nil
	}
	all := make(labels)
	all.namespaces(r.Key().Namespace)
	switch spec := spec.(type) {
	case *networking.VirtualService:
		all.namespaces(spec.GetExportTo()...)
		all.routes(spec)
	case *networking.DestinationRule:
		all.namespaces(spec.GetExportTo()...)
		p := &policy{traffic: spec.GetTrafficPolicy(), subsets: spec.GetSubsets()}
		all.policy(p)
		all.places(p)
		all.credentials(p.credentials())
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
func (l labels) routes(spec *networking.VirtualService) {
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

func addSources[M attributes](l labels, matches []M) {
	for _, m := range matches {
		l.add(m.GetSourceLabels())
		if m.GetSourceNamespace() != "" {
			l.namespaces(m.GetSourceNamespace())
		}
	}
}

// policy adds the labels by which a policy ranks endpoints, and says whether there are some.
func (l labels) policy(p *policy) (some bool) {
	of := func(lb *networking.LoadBalancerSettings) {
		for _, text := range lb.GetLocalityLbSetting().GetFailoverPriority() {
			name, value, given := strings.Cut(text, "=")
			l[label{name: name, value: value, any: !given}] = struct{}{}
			some = true
		}
	}
	each := func(t *networking.TrafficPolicy) {
		of(t.GetLoadBalancer())
		for _, s := range t.GetPortLevelSettings() {
			of(s.GetLoadBalancer())
		}
	}
	each(p.traffic)
	for _, s := range p.subsets {
		each(s.GetTrafficPolicy())
	}
	return some
}

// lookouts count the objects that look at each label. It is not safe for concurrent use.
type lookouts struct {
	of    map[resource.Key]labels
	count map[label]int
	kinds [aspects]int // how many there are of each aspect
	grown uint64       // how often something was looked at that nobody had looked at
}

func newLookouts() *lookouts {
	return &lookouts{of: make(map[resource.Key]labels), count: make(map[label]int)}
}

// set notes what an object looks at.
func (l *lookouts) set(key resource.Key, now labels) {
	l.hold(now)
	l.release(l.of[key])
	if l.of[key] = now; len(now) == 0 {
		delete(l.of, key)
	}
}

// hold counts labels once more.
func (l *lookouts) hold(all labels) {
	for of := range all {
		if l.count[of]++; l.count[of] == 1 {
			l.kinds[of.of]++
			if of.of != ofSites || l.kinds[ofPlaces] > 0 {
				l.grown++
			}
		}
	}
}

// release counts them once less.
func (l *lookouts) release(all labels) {
	for of := range all {
		if l.count[of]--; l.count[of] == 0 {
			l.kinds[of.of]--
			delete(l.count, of)
		}
	}
}

// narrow leaves of a client what objects look at.
func (l *lookouts) narrow(p *profile) {
	p.labels = p.labelsThat(func(of label) bool { return l.count[of] > 0 })
	p.labelled = p.labelled && l.kinds[ofLabels] > 0
	if l.count[label{of: ofNamespaces, name: p.namespace}] == 0 {
		p.namespace = elsewhere
	}
	p.place = l.reduce(p.place)
	if l.kinds[ofCredentials] == 0 {
		p.credentials = ""
	}
}

// labelsOf returns those of the labels that are looked at, as a text.
func (p *profile) labelsOf(some labels) string {
	return p.labelsThat(func(of label) bool { _, ok := some[of]; return ok })
}

func (p *profile) labelsThat(isLookedAt func(label) bool) string {
	all := p.labelMap()
	maps.DeleteFunc(all, func(name, value string) bool {
		return !isLookedAt(label{name: name, any: true}) && !isLookedAt(label{name: name, value: value})
	})
	return labelText(all)
}

// tellApart has clients be told apart by what objects look at now. When it returns, those who were not are in scopes of their own.
func (c *Catalog) tellApart() {
	c.mu.Lock()
	grown := c.mesh.lookouts.grown
	changed, review := grown != c.apart, c.review
	c.apart = grown
	c.mu.Unlock()
	if changed && review != nil {
		review()
	}
}

// looksAtPlaces says whether some object does, or some of those that come.
func (c *Catalog) looksAtPlaces(coming []labels) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mesh.lookouts.kinds[ofPlaces] > 0 || slices.ContainsFunc(coming, func(l labels) bool {
		_, is := l[label{of: ofPlaces}]
		return is
	})
}

// foresee has clients be told apart by what objects look at that are about to come, before these are told: nobody has to lose what it was told by one label to
// be told the same by another. What it returns is to be called when they have come.
func (c *Catalog) foresee(objects iter.Seq[*resource.Resource]) (come func()) {
	var all []labels
	for r := range objects {
		if r.Key().Kind == resource.ServiceEntry {
			all = append(all, lookedAtByEntry(r.Key().Namespace, exportedTo(r.Body())))
		}
		if !slices.Contains(selecting, r.Key().Kind) {
			continue
		}
		if spec, err := r.Spec(); err == nil { // else it is not told
			all = append(all, lookedAt(r, spec))
		}
	}
	if c.looksAtPlaces(all) {
		for r := range objects {
			if kind := r.Key().Kind; kind == resource.ServiceEntry || kind == resource.WorkloadEntry {
				all = append(all, sitesOfObject(r))
			}
		}
	}
	each := func(do func(*lookouts, labels)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, l := range all {
			do(c.mesh.lookouts, l)
		}
	}
	each((*lookouts).hold)
	c.tellApart()
	return func() {
		each((*lookouts).release)
		c.tellApart()
	}
}
