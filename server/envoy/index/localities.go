package index

import (
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Where rules look at places, a client's makes a difference only as far as it is one where endpoints are, or that a rule names. So of a
// place that a client makes up there is left that it is none of these, and in which known one.

// nowhere is a region, a zone or a sub-zone that none is in, nor names.
const nowhere = "\x00"

// anySite has the places of clients be left as they are.
var anySite = Label{Of: ofSites, any: true}

func siteOf(region string) Label { return Label{Of: ofSites, name: region} }

func siteOfZone(region, zone string) Label {
	return Label{Of: ofSites, name: region, value: "zone " + zone}
}

func siteOfSubZone(at model.Locality) Label {
	return Label{Of: ofSites, name: at.Region, value: "in " + strconv.Itoa(len(at.Zone)) + at.Zone + at.SubZone}
}

// site adds a place that there is.
func (l Labels) site(at model.Locality) {
	if at == (model.Locality{}) {
		return // that is known without being said
	}
	for _, of := range []Label{siteOf(at.Region), siteOfZone(at.Region, at.Zone), siteOfSubZone(at)} {
		l[of] = struct{}{}
	}
}

// sitesIn adds what a pattern names: see locality.isIn. Of one that names a part and not that in which it is, there is no telling which
// places it makes a difference to.
func (l Labels) sitesIn(pattern string) {
	parts := append(strings.SplitN(pattern, "/", 3), "", "")[:3]
	named := slices.IndexFunc(parts, func(part string) bool { return part == "*" || part == "" })
	if named < 0 {
		named = len(parts)
	}
	switch at := (model.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}); {
	case slices.ContainsFunc(parts[named:], func(part string) bool { return part != "*" && part != "" }):
		l[anySite] = struct{}{}
	case named == 1:
		l[siteOf(at.Region)] = struct{}{}
	case named == 2:
		l[siteOf(at.Region)], l[siteOfZone(at.Region, at.Zone)] = struct{}{}, struct{}{}
	case named == 3:
		l.site(at)
	}
}

// sites adds the places that a policy names.
func (l Labels) sites(p *model.Policy) {
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
	each(p.Traffic)
	for _, s := range p.Subsets {
		each(s.GetTrafficPolicy())
	}
}

// localitiesOf are the places where the endpoints of a ServiceEntry are, each once, that have one.
func localitiesOf(endpoints []listed) (all []model.Locality) {
	for i, e := range endpoints {
		if i > 0 && e.rest == endpoints[i-1].rest {
			continue
		}
		if at := model.LocalityOf(model.LocalityText(e.rest, e.rest.GetLabels())); at != (model.Locality{}) && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}

// lookedAtBySites is that somebody is at places.
func lookedAtBySites(all ...model.Locality) Labels {
	var l Labels
	for _, at := range all {
		if l == nil {
			l = make(Labels, 3)
		}
		l.site(at)
	}
	return l
}

// SitesOfObject is where the endpoints are that an object tells of.
func SitesOfObject(r *resource.Resource) Labels {
	switch r.Key().Kind {
	case resource.ServiceEntry:
		if _, endpoints, err := decodeEntry(r); err == nil {
			return lookedAtBySites(localitiesOf(endpoints)...)
		}
	case resource.WorkloadEntry:
		if spec, err := SpecOf[*networking.WorkloadEntry](r); err == nil {
			return lookedAtBySites(newWorkload(r, spec).locality())
		}
	}
	return nil // it is not served
}

// reduce leaves of a place what makes a difference.
func (l *SelectorIndex) reduce(at model.Locality) model.Locality {
	switch {
	case l.Kinds[OfPlaces] == 0:
		return model.Locality{}
	case at == (model.Locality{}), l.count[anySite] > 0, l.count[siteOfSubZone(at)] > 0:
		return at
	case l.count[siteOf(at.Region)] == 0:
		return model.Locality{Region: nowhere}
	case l.count[siteOfZone(at.Region, at.Zone)] == 0:
		return model.Locality{Region: at.Region, Zone: nowhere}
	}
	return model.Locality{Region: at.Region, Zone: at.Zone, SubZone: nowhere}
}
