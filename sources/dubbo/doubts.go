package dubbo

import (
	"fmt"
	"maps"
	"slices"

	"tributary/internal/words"
	"tributary/sources/dubbo/mapping"
)

// Doubts are what is hardly meant of options, though it can be done: each begins with the key at fault, as errors do.
func Doubts(o mapping.Options) (all []string) {
	known := mapping.Protocols()
	for _, protocol := range slices.Sorted(maps.Keys(o.ServicePorts)) {
		guess := words.Nearest(protocol, known)
		if slices.Contains(known, protocol) || guess == "" || protocol == "https" {
			continue
		}
		all = append(all, fmt.Sprintf("servicePorts: %s is no protocol of Dubbo's; did you mean %s?", protocol, guess))
	}
	return all
}
