package model

import (
	"cmp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

const localityLabel = "istio-locality" // with dots, since labels have no slashes

// Locality is the location of a client or an endpoint. The zero value is unknown.
type Locality struct{ Region, Zone, SubZone string }

// Compare orders localities by region, zone and sub-zone.
func (l Locality) Compare(o Locality) int {
	return cmp.Or(strings.Compare(l.Region, o.Region), strings.Compare(l.Zone, o.Zone),
		strings.Compare(l.SubZone, o.SubZone))
}

// LocalityText returns the locality of a workload as region/zone/subzone: its field, or its label.
func LocalityText(spec *networking.WorkloadEntry, labels map[string]string) string {
	return cmp.Or(spec.GetLocality(), strings.ReplaceAll(labels[localityLabel], ".", "/"))
}

// LocalityOf parses region/zone/subzone. Zone and subzone are optional.
func LocalityOf(s string) Locality {
	parts := append(strings.SplitN(s, "/", 3), "", "")
	return Locality{parts[0], parts[1], parts[2]}
}

// IsIn reports whether the locality matches a pattern: region/zone/subzone, with asterisks. Zone and subzone are
// optional.
func (l Locality) IsIn(pattern string) bool {
	parts := append(strings.SplitN(pattern, "/", 3), "", "")
	fits := func(part, name string) bool { return part == "*" || part == "" || part == name }
	return (parts[0] == "*" || parts[0] == l.Region) && fits(parts[1], l.Zone) && fits(parts[2], l.SubZone)
}
