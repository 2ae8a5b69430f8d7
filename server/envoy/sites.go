package envoy

import (
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Where rules look at places, a client's makes a difference only as far as it is one where endpoints are, or that a rule names. So of a place that a client makes up
// there is left that it is none of these, and in which known one.

// nowhere is a region, a zone or a sub-zone that none is in, nor names.
const nowhere = "\x00"

// anySite has the places of clients be left as they are.
var anySite = label{of: ofSites, any: true}

func siteOf(region string) label { return label{of: ofSites, name: region} }

func siteOfZone(region, zone string) label {
	return label{of: ofSites, name: region, value: "zone " + zone}
}

func siteOfSubZone(at locality) label {
	return label{of: ofSites, name: at.region, value: "in " + strconv.Itoa(len(at.zone)) + at.zone + at.subZone}
}

// site adds a place that there is.
func (l labels) site(at locality) {
	if at == (locality{}) {
		return // that is known without being said
	}
	for _, of := range []label{siteOf(at.region), siteOfZone(at.region, at.zone), siteOfSubZone(at)} {
		l[of] = struct{}{}
	}
}

// sitesIn adds what a pattern names: see locality.isIn. Of one that names a part and not that in which it is, there is no telling which places it makes a difference to.
func (l labels) sitesIn(pattern string) {
	parts := append(strings.SplitN(pattern, "/", 3), "", "")[:3]
	named := slices.IndexFunc(parts, func(part string) bool { return part == "*" || part == "" })
	if named < 0 {
		named = len(parts)
	}
	switch at := (locality{parts[0], parts[1], parts[2]}); {
	case slices.ContainsFunc(parts[named:], func(part string) bool { return part != "*" && part != "" }):
		l[anySite] = struct{}{}
	case named == 1:
		l[siteOf(at.region)] = struct{}{}
	case named == 2:
		l[siteOf(at.region)], l[siteOfZone(at.region, at.zone)] = struct{}{}, struct{}{}
	case named == 3:
		l.site(at)
	}
}

// sites adds the places that a policy names.
func (l labels) sites(p *policy) {
	of := func(lb *networking.LoadBalancerSettings) {
		for _, f := range lb.GetLocalityLbSetting().GetFailover() {
			l[siteOf(f.GetFrom())] = struct{}{}
		}
		for _, d := range lb.GetLocalityLbSetting().GetDistribute() {
			l.sitesIn(d.GetFrom())
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
}

// sitesOf are the places where the endpoints of a ServiceEntry are, each once, that have one.
func sitesOf(endpoints []listed) (all []locality) {
	for i, e := range endpoints {
		if i > 0 && e.rest == endpoints[i-1].rest {
			continue
		}
		if at := localityOf(siteText(e.rest, e.rest.GetLabels())); at != (locality{}) && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}

// lookedAtBySites is that somebody is at places.
func lookedAtBySites(all ...locality) labels {
	var l labels
	for _, at := range all {
		if l == nil {
			l = make(labels, 3)
		}
		l.site(at)
	}
	return l
}

// sitesOfObject is where the endpoints are that an object tells of.
func sitesOfObject(r *resource.Resource) labels {
	switch r.Key().Kind {
	case resource.ServiceEntry:
		if _, endpoints, err := decodeEntry(r); err == nil {
			return lookedAtBySites(sitesOf(endpoints)...)
		}
	case resource.WorkloadEntry:
		if spec, err := specOf[*networking.WorkloadEntry](r); err == nil {
			return lookedAtBySites(newWorkload(r, spec).site())
		}
	}
	return nil // it is not served
}

// reduce leaves of a place what makes a difference.
func (l *lookouts) reduce(at locality) locality {
	switch {
	case l.kinds[ofPlaces] == 0:
		return locality{}
	case at == (locality{}), l.count[anySite] > 0, l.count[siteOfSubZone(at)] > 0:
		return at
	case l.count[siteOf(at.region)] == 0:
		return locality{region: nowhere}
	case l.count[siteOfZone(at.region, at.zone)] == 0:
		return locality{region: at.region, zone: nowhere}
	}
	return locality{at.region, at.zone, nowhere}
}
