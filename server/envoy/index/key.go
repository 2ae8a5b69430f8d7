package index

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Key identifies the content of a view: all parts that a translation can read.
func Key(view *model.View) model.Key {
	digest := RoutesKey(view)
	digest.Text(view.Host)
	part(&digest, view.Service, func(service *model.Service) string { return service.From })
	policy(&digest, &view.Policy)
	part(&digest, view.Mutual, func(m *model.Mutual) string { return m.From })
	digest.Number(int64(len(view.RoutesByListener)))
	for _, part := range slices.Sorted(maps.Keys(view.RoutesByListener)) {
		digest.Number(int64(part))
		digestVirtualService(&digest, view.RoutesByListener[part])
	}
	digestVirtualService(&digest, view.UnregisteredRoutes)
	digest.Number(int64(len(view.Servers)))
	for _, s := range view.Servers {
		digest.Object(s.Gateway.Key)
		digest.Text(s.Gateway.Version, s.Place.Field)
		digest.Flag(s.Denial != nil)
	}
	digest.Number(int64(len(view.BoundVirtualServices)))
	for _, r := range view.BoundVirtualServices {
		digestVirtualService(&digest, r)
	}
	part(&digest, view.Observability, func(o *model.Observation) string { return o.From })
	part(&digest, view.Security, func(s *model.Security) string { return s.From })
	part(&digest, view.Inbound, func(i *model.Inbound) string { return i.From })
	part(&digest, view.Patches, func(e *model.Extension) string { return e.From })
	digest.Findings(view.Objects, view.Findings)
	return sha256.Sum256(digest)
}

// RoutesKey identifies the client and the targets of a view. Routes depend on them and on VirtualServices and servers.
func RoutesKey(view *model.View) (digest model.Digest) {
	client(&digest, &view.Client)
	digest.Number(int64(len(view.RouteTargets)))
	for _, host := range slices.Sorted(maps.Keys(view.RouteTargets)) {
		target(&digest, host, view.RouteTargets[host])
	}
	return digest
}

// part adds a part of the view. It may be nil.
func part[T any](digest *model.Digest, p *T, from func(*T) string) {
	digest.Flag(p != nil)
	if p != nil {
		digest.Text(from(p))
	}
}

func client(digest *model.Digest, profile *model.Profile) {
	digest.Number(int64(profile.Role))
	digest.Flag(profile.Captures)
	digest.Flag(profile.LabelsMatter)
	digest.Flag(profile.OnDemand)
	digest.Flag(profile.Large)
	digest.Flag(profile.Transparent)
	digest.Text(profile.Namespace, profile.Labels, profile.Locality.Region, profile.Locality.Zone,
		profile.Locality.SubZone, profile.Credentials, profile.Identity,
		profile.Inbound)
}

// port adds the settings of a Sidecar for a port of a service. Service.From covers the rest of the port.
func port(digest *model.Digest, servicePort *model.Port) {
	digest.Number(int64(servicePort.Number))
	digest.Flag(servicePort.Unreached)
	digest.Flag(servicePort.Late)
	digest.Number(int64(servicePort.Part))
	digest.Number(int64(servicePort.Spoken))
	digest.Text(servicePort.Bind)
}

func policy(digest *model.Digest, p *model.Policy) { digest.Text(p.Namespace, p.Name, p.From) }

func digestVirtualService(digest *model.Digest, r *model.VirtualService) {
	digest.Flag(r != nil)
	if r != nil {
		digest.Object(r.Key)
		digest.Text(r.Version)
	}
}

func target(digest *model.Digest, host string, routeTarget model.Target) {
	digest.Text(host)
	digest.Number(int64(len(routeTarget.Ports)))
	for _, port := range routeTarget.Ports {
		digest.Number(int64(port))
	}
	policy(digest, &routeTarget.Policy)
}

// reduceClient drops the attributes of the view's client that do not affect the view: clients that differ only in these
// share its translation.
func reduceClient(view *model.View, profile model.Profile) {
	view.Client = model.Profile{Role: profile.Role, Captures: profile.Captures}
	if view.Inbound != nil {
		view.Client = profile
		view.Client.Labels = ""
		view.Client.LabelsMatter = false
		view.Client.Locality = model.Locality{}
		view.Client.Large = false
		return
	}
	reads := make(Selectors)
	readsLabels := reads.failoverPriorities(&view.Policy)
	for _, virtualService := range allVirtualServices(view) {
		view.Client.Large = profile.Large
		view.Client.OnDemand = profile.OnDemand // routes to missing clusters
		if virtualService.Uniform {
			continue
		}
		reads.routes(virtualService.Spec)
		if model.DependsOnClient(virtualService.Spec) {
			view.Client.Namespace = profile.Namespace
		}
	}
	view.Client.Labels = filterLabels(&profile, func(s Selector) bool { return reads[s] })
	view.Client.LabelsMatter = profile.LabelsMatter && readsLabels
	if dependsOnLocality(&view.Policy) {
		view.Client.Locality = profile.Locality
	}
	if profile.Role == model.Ingress || profile.Role == model.Sidecar &&
		strings.Contains(view.Host, "."+profile.Namespace+".svc.") {
		view.Client.Namespace = profile.Namespace // short names depend on the namespace, and VirtualServices may
	}
	if profile.Role == model.Ingress || view.Policy.Traffic != nil || len(view.Policy.Subsets) > 0 {
		view.Client.Credentials = profile.Credentials
	}
	if view.Mutual != nil || view.Host == model.GatewayPseudoHost {
		view.Client.Identity = profile.Identity
	}
}

// allVirtualServices returns the VirtualServices of the view.
func allVirtualServices(view *model.View) []*model.VirtualService {
	rules := slices.Clone(view.BoundVirtualServices)
	for _, rule := range view.RoutesByListener {
		rules = append(rules, rule)
	}
	if view.UnregisteredRoutes != nil {
		rules = append(rules, view.UnregisteredRoutes)
	}
	return rules
}

// completeView sorts the objects of a view and reduces its client to the attributes that affect it.
func completeView(view *model.View, profile model.Profile) *model.View {
	slices.SortFunc(view.Objects, resource.Key.Compare)
	view.Objects = slices.Compact(view.Objects)
	reduceClient(view, profile)
	return view
}
