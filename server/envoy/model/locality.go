package model

import (
	"cmp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

const localityLabel = "istio-locality" // with dots, since labels have no slashes

// Locality is where a client or an endpoint is. The zero value is nowhere that is known.
type Locality struct{ Region, Zone, SubZone string }

// Compare orders localities by region, zone and sub-zone.
func (l Locality) Compare(o Locality) int {
	return cmp.Or(strings.Compare(l.Region, o.Region), strings.Compare(l.Zone, o.Zone), strings.Compare(l.SubZone, o.SubZone))
}

// LocalityText returns the locality of a workload as region/zone/subzone: its own, or that of its label.
func LocalityText(spec *networking.WorkloadEntry, labels map[string]string) string {
	return cmp.Or(spec.GetLocality(), strings.ReplaceAll(labels[localityLabel], ".", "/"))
}

// LocalityOf reads region/zone/subzone, of which the latter may be missing.
func LocalityOf(s string) Locality {
	parts := append(strings.SplitN(s, "/", 3), "", "")
	return Locality{parts[0], parts[1], parts[2]}
}

// IsIn says whether the locality is one of those that a pattern stands for: region/zone/subzone, of which the latter may be missing or
// asterisks.
func (l Locality) IsIn(pattern string) bool {
	parts := append(strings.SplitN(pattern, "/", 3), "", "")
	fits := func(part, name string) bool { return part == "*" || part == "" || part == name }
	return (parts[0] == "*" || parts[0] == l.Region) && fits(parts[1], l.Zone) && fits(parts[2], l.SubZone)
}
