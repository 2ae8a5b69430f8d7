package report

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
		line := e.Address
		for i, port := range slices.Sorted(maps.Keys(e.Ports)) {
			separator := ","
			if i == 0 {
				separator = " "
			}
			line += fmt.Sprintf("%s%d→%d", separator, port, e.Ports[port])
		}
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
