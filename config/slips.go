package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"tributary/internal/nearest"
	"tributary/sources/dubbo"
)

// parameters are those of addresses that count, of registries in whose addresses others are let pass: Dubbo's users write those for consumers and
// providers into the same URL.
var parameters = map[string][]string{
	dubbo.Scheme:      {"backup", "group", "timeout", "session", "username", "password"},
	dubbo.NacosScheme: {"backup", "namespace", "group", "contextPath", "grpcOffset", "username", "password", "kind"},

	dubbo.ConsulScheme:       {"dc", "ns", "partition", "kind"},
	dubbo.ConsulSecureScheme: {"dc", "ns", "partition", "kind"},
}

// slips returns a warning for each parameter that is let pass, and was probably meant to be one that counts.
func (d *decoder) slips(all []Source) (warnings []Problem) {
	for i := range all {
		name, rest, _ := strings.Cut(all[i].Address, "://")
		known := parameters[name]
		_, query, _ := strings.Cut(rest, "?")
		values, _ := url.ParseQuery(query) // what is wrong with it was said
		for _, one := range slices.Sorted(maps.Keys(values)) {
			guess := nearest.Name(one, known)
			if len(known) == 0 || slices.Contains(known, one) || guess == "" || one == "version" { // which is Dubbo's, and near to session
				continue
			}
			key := fmt.Sprintf("configSources[%d].address", i)
			warnings = append(warnings, Problem{
				File: d.file, Line: d.place(key).line, Column: d.place(key).column, Key: key,
				Message: fmt.Sprintf("the parameter %s is passed over; did you mean %s?", one, guess),
			})
		}
	}
	return warnings
}
