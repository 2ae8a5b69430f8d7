package index

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Key identifies the content of the view: all parts that a translation can read.
func Key(v *model.View) model.Key {
	d := RoutesKey(v)
	d.Text(v.Host)
	part(&d, v.Service, func(s *model.Service) string { return s.From })
	policy(&d, &v.Policy)
	part(&d, v.Mutual, func(m *model.Mutual) string { return m.From })
	d.Number(int64(len(v.Rules)))
	for _, part := range slices.Sorted(maps.Keys(v.Rules)) {
		d.Number(int64(part))
		rule(&d, v.Rules[part])
	}
	rule(&d, v.Own)
	d.Number(int64(len(v.Servers)))
	for _, s := range v.Servers {
		d.Object(s.Gateway.Key)
		d.Text(s.Gateway.Version, s.Place.Field)
		d.Flag(s.Denial != nil)
	}
	d.Number(int64(len(v.Bound)))
	for _, r := range v.Bound {
		rule(&d, r)
	}
	part(&d, v.Seen, func(o *model.Observation) string { return o.From })
	part(&d, v.Secured, func(s *model.Security) string { return s.From })
	part(&d, v.Inbound, func(i *model.Inbound) string { return i.From })
	part(&d, v.Extended, func(e *model.Extension) string { return e.From })
	d.Found(v.Objects, v.Findings)
	return sha256.Sum256(d)
}

// RoutesKey identifies the client and the targets of a view, which routes depend on in addition to VirtualServices and
// servers.
func RoutesKey(v *model.View) (d model.Digest) {
	client(&d, &v.Client)
	d.Number(int64(len(v.Targets)))
	for _, host := range slices.Sorted(maps.Keys(v.Targets)) {
		target(&d, host, v.Targets[host])
	}
	return d
}

// part adds a part of the view, which may be nil.
func part[T any](d *model.Digest, p *T, from func(*T) string) {
	if d.Flag(p != nil); p != nil {
		d.Text(from(p))
	}
}

func client(d *model.Digest, p *model.Profile) {
	d.Number(int64(p.Role))
	d.Flag(p.Captures)
	d.Flag(p.Labelled)
	d.Flag(p.OnDemand)
	d.Flag(p.Large)
	d.Flag(p.Transparent)
	d.Text(p.Namespace, p.Labels, p.Locality.Region, p.Locality.Zone, p.Locality.SubZone, p.Credentials, p.Identity,
		p.Inbound)
}

// port adds the settings of a Sidecar for a port of a service. Service.From covers the rest of the port.
func port(d *model.Digest, p *model.Port) {
	d.Number(int64(p.Number))
	d.Flag(p.Unreached)
	d.Flag(p.Late)
	d.Number(int64(p.Part))
	d.Number(int64(p.Spoken))
	d.Text(p.Bind)
}

func policy(d *model.Digest, p *model.Policy) { d.Text(p.Namespace, p.Name, p.From) }

func rule(d *model.Digest, r *model.Rule[*networking.VirtualService]) {
	if d.Flag(r != nil); r != nil {
		d.Object(r.Key)
		d.Text(r.Version)
	}
}

func target(d *model.Digest, host string, t model.Target) {
	d.Text(host)
	d.Number(int64(len(t.Ports)))
	for _, port := range t.Ports {
		d.Number(int64(port))
	}
	policy(d, &t.Policy)
}

// narrow drops the attributes of the view's client that do not affect the view: clients that differ in others share its
// translation.
func narrow(v *model.View, p model.Profile) {
	v.Client = model.Profile{Role: p.Role, Captures: p.Captures}
	if v.Inbound != nil {
		v.Client = p
		v.Client.Labels, v.Client.Labelled, v.Client.Locality, v.Client.Large = "", false, model.Locality{}, false
		return
	}
	reads := make(Selectors)
	readsLabels := reads.failoverPriorities(&v.Policy)
	for _, r := range allRules(v) {
		v.Client.Large = p.Large
		v.Client.OnDemand = p.OnDemand // routes that lead nowhere
		if r.Uniform {
			continue
		}
		reads.routes(r.Spec)
		if model.TellsApart(r.Spec) {
			v.Client.Namespace = p.Namespace
		}
	}
	v.Client.Labels = labelsThat(&p, func(s Selector) bool { _, ok := reads[s]; return ok })
	v.Client.Labelled = p.Labelled && readsLabels
	if dependsOnLocality(&v.Policy) {
		v.Client.Locality = p.Locality
	}
	if p.Role == model.Ingress || p.Role == model.Sidecar && strings.Contains(v.Host, "."+p.Namespace+".svc.") {
		v.Client.Namespace = p.Namespace // shorter names are, and VirtualServices can be, known to some namespaces only
	}
	if p.Role == model.Ingress || v.Policy.Traffic != nil || len(v.Policy.Subsets) > 0 {
		v.Client.Credentials = p.Credentials
	}
	if v.Mutual != nil || v.Host == model.GatewayUnit {
		v.Client.Identity = p.Identity
	}
}

// allRules returns the VirtualServices of the view.
func allRules(v *model.View) []*model.Rule[*networking.VirtualService] {
	rules := slices.Clone(v.Bound)
	for _, r := range v.Rules {
		rules = append(rules, r)
	}
	if v.Own != nil {
		rules = append(rules, v.Own)
	}
	return rules
}

// complete makes the view complete, for clients of a profile.
func complete(v *model.View, p model.Profile) *model.View {
	slices.SortFunc(v.Objects, resource.Key.Compare)
	v.Objects = slices.Compact(v.Objects)
	narrow(v, p)
	return v
}
