package dubbo

import (
	"fmt"
	"maps"
	"slices"

	"tributary/internal/words"
	"tributary/sources/dubbo/mapping"
)

// Doubts returns warnings for options that are valid but probably mistaken; each begins with the key.
func Doubts(o mapping.Options) (all []string) {
	known := mapping.Protocols()
	for _, protocol := range slices.Sorted(maps.Keys(o.ServicePorts)) {
		guess := words.Nearest(protocol, known)
		if slices.Contains(known, protocol) || guess == "" || protocol == "https" {
			continue
		}
		all = append(all, fmt.Sprintf("servicePorts: unknown Dubbo protocol %s; did you mean %s?", protocol, guess))
	}
	return all
}
