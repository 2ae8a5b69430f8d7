package mapping

import (
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/internal/names"
)

// labelsOf makes labels of tags and meta. What cannot be a label is left out, which is not worth a warning: most tags are for
// others. A key of the meta wins over one of a tag, and the first tag over later ones.
func (m *Mapper) labelsOf(s *api.AgentService) map[string]string {
	labels := map[string]string{}
	add := func(key, value string) {
		if key = m.o.LabelPrefix + key; names.IsLabelKey(key) && names.IsLabelText(value) {
			if _, taken := labels[key]; !taken {
				labels[key] = value
			}
		}
	}
	for key, value := range s.Meta {
		if key != m.o.ProtocolMeta && key != m.o.ServicePortMeta && !strings.HasPrefix(key, m.o.ProtocolMeta+"-") {
			add(key, value)
		}
	}
	for _, tag := range s.Tags {
		if key, value, ok := m.cutTag(tag); ok {
			add(key, value)
		} else if slices.Contains(m.o.Tags, tag) {
			add(tag, "true")
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// cutTag cuts a tag at the first separator in it.
func (m *Mapper) cutTag(tag string) (key, value string, ok bool) {
	at, width := -1, 0
	for _, sep := range m.o.TagSeparators {
		// Of two that begin at the same place the longer one is meant.
		if i := strings.Index(tag, sep); i >= 0 && (at < 0 || i < at || i == at && len(sep) > width) {
			at, width = i, len(sep)
		}
	}
	if at < 0 {
		return "", "", false
	}
	return tag[:at], tag[at+width:], true
}

// The keys of a node's meta in which a locality is found; the first that is there counts. They are habits: Consul has none of
// its own.
var (
	regionKeys  = []string{"region"}
	zoneKeys    = []string{"zone", "availability-zone", "availability_zone", "az"}
	subzoneKeys = []string{"subzone", "rack"}
)

// localityOf returns a locality as Istio writes it, region/zone/subzone, or nothing.
func (m *Mapper) localityOf(s *api.AgentService, n *api.Node, datacenter string) string {
	of := func(l *api.Locality) string {
		if l == nil {
			return ""
		}
		return joinLocality(l.Region, l.Zone, "")
	}
	first := func(keys []string) string {
		for _, key := range keys {
			if v := n.Meta[key]; v != "" {
				return v
			}
		}
		return ""
	}
	for _, from := range m.o.LocalityFrom {
		var l string
		switch from {
		case localityConsul:
			if l = of(s.Locality); l == "" {
				l = of(n.Locality)
			}
		case localityMeta:
			region, zone, subzone := first(regionKeys), first(zoneKeys), first(subzoneKeys)
			if region == "" && zone != "" {
				region = datacenter
			}
			l = joinLocality(region, zone, subzone)
		case localityDatacenter:
			l = joinLocality(datacenter, "", "")
		}
		if l != "" {
			return l
		}
	}
	return ""
}

// joinLocality ends where a part is missing, as Istio's hierarchy does. istiod makes labels of the parts.
func joinLocality(parts ...string) string {
	var l []string
	for _, part := range parts {
		if part = localityPart(part); part == "" {
			break
		}
		l = append(l, part)
	}
	return strings.Join(l, "/")
}

func localityPart(s string) string {
	text := strings.Map(func(c rune) rune {
		if names.IsLabelText("x" + string(c) + "x") {
			return c
		}
		return '-'
	}, s)
	return names.Fit(strings.Trim(text, "-_."), s, names.MaxLabel)
}
