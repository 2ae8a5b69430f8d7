package config

import (
	"fmt"
	"slices"
	"strings"
)

// Merge says what of a source is made one with what other sources have. It is written as a mapping, or as endpoints.
type Merge struct {
	// ServiceEntries of a host are made one with those that the other sources with this setting have.
	Endpoints *Endpoints `json:"endpoints,omitempty"`
}

// Endpoints says how the endpoints of a source go into merged ServiceEntries.
type Endpoints struct {
	// Locality of all endpoints of the source, as region/zone/subzone. Default: what the source says of each.
	Locality string `json:"locality,omitempty"`
	// Endpoints of the source are served only while the sources of a lower number list none for the service. Default: 0.
	Priority int `json:"priority,omitempty"`
}

const mergeEndpoints = "endpoints"

// UnmarshalText reads the form that is not a mapping.
func (m *Merge) UnmarshalText(text []byte) error {
	if string(text) != mergeEndpoints {
		return fmt.Errorf("want endpoints or a mapping such as {endpoints: {priority: 1}}, got %q", text)
	}
	m.Endpoints = &Endpoints{}
	return nil
}

func (d *decoder) checkMerge(m Merge, key string) {
	if m.Endpoints == nil {
		return
	}
	key += "." + mergeEndpoints
	if m.Endpoints.Priority < 0 {
		d.problem(key+".priority", "want 0 or more, got %d", m.Endpoints.Priority)
	}
	if locality := m.Endpoints.Locality; locality != "" {
		if parts := strings.Split(locality, "/"); len(parts) > 3 || slices.Contains(parts, "") {
			d.problem(key+".locality", "want region, region/zone or region/zone/subzone, got %q", locality)
		}
	}
}
