package mapping

import (
	"cmp"
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

// localityKeys are the keys of a node's meta in which a region, zone and subzone are found; the first that is there counts. They are
// habits: Consul has none of its own.
var localityKeys = [...][]string{{"region"}, {"zone", "availability-zone", "availability_zone", "az"}, {"subzone", "rack"}}

// localityOf returns a locality as Istio writes it, region/zone/subzone, or nothing.
func (m *Mapper) localityOf(s *api.AgentService, n *api.Node, datacenter string) string {
	for _, from := range m.o.LocalityFrom {
		var candidates [][]string
		switch from {
		case localityConsul:
			for _, l := range []*api.Locality{s.Locality, n.Locality} {
				if l != nil {
					candidates = append(candidates, []string{l.Region, l.Zone})
				}
			}
		case localityMeta:
			parts := make([]string, len(localityKeys))
			for i, keys := range localityKeys {
				for _, key := range keys {
					parts[i] = cmp.Or(parts[i], n.Meta[key])
				}
			}
			if parts[1] != "" {
				parts[0] = cmp.Or(parts[0], datacenter)
			}
			candidates = append(candidates, parts)
		case localityDatacenter:
			candidates = append(candidates, []string{datacenter})
		}
		for _, parts := range candidates {
			if l := joinLocality(parts); l != "" {
				return l
			}
		}
	}
	return ""
}

// joinLocality ends where a part is missing, as Istio's hierarchy does. istiod makes labels of the parts.
func joinLocality(parts []string) string {
	var l []string
	for _, part := range parts {
		text := strings.Map(func(c rune) rune {
			if names.IsLabelText("x" + string(c) + "x") {
				return c
			}
			return '-'
		}, part)
		if text = names.Fit(strings.Trim(text, "-_."), part, names.MaxLabel); text == "" {
			break
		}
		l = append(l, text)
	}
	return strings.Join(l, "/")
}
