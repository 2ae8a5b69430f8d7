package output

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tributary/server/admin"
)

// members says what a merged object is made of.
func (t *text) members(o admin.Explained) (lines []string) {
	if o.Merged == nil {
		return nil
	}
	for _, m := range o.Merged.Members {
		lines = append(lines, t.statement(m.Statement)...)
	}
	return lines
}

// endpoints says where each endpoint of a merged object comes from.
func endpoints(o admin.Explained) (lines []string) {
	if o.Merged == nil {
		return nil
	}
	for _, e := range o.Merged.Endpoints {
		var ports []string
		for _, port := range slices.Sorted(maps.Keys(e.Ports)) {
			ports = append(ports, fmt.Sprintf("%d→%d", port, e.Ports[port]))
		}
		line := strings.TrimRight(e.Address+" "+strings.Join(ports, ","), " ")
		if e.Locality != "" {
			line += " in " + e.Locality
		}
		line += "  from " + e.Source
		if len(e.Also) > 0 {
			line += ", also in " + strings.Join(e.Also, ", ")
		}
		if e.Standby {
			line += "  [standby]"
		}
		lines = append(lines, line)
	}
	return lines
}
