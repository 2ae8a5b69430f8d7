package dubbo

import (
	"fmt"
	"slices"
	"strings"

	dubboconsul "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/provider"
)

// whyEmpty says that nothing is served, and what the registry has instead; empty if something is served. To a registry a mistyped group is
// an empty one, which is no error.
func (s *state) whyEmpty() (all []string) {
	if services, _ := s.Services(); services > 0 {
		return nil
	}
	applications, others := s.skipped[applicationNames], 0
	for _, a := range s.applications {
		if len(a.instances) == 0 || slices.ContainsFunc(a.list(), func(i *instance) bool { return !i.read || i.dubbo }) {
			applications++
		} else {
			others++
		}
	}
	if interfaces := len(s.interfaces) + s.skipped[interfaceNames]; interfaces+applications > 0 {
		return []string{fmt.Sprintf("nothing is served: none of %d interfaces and %d applications has a provider that the settings select",
			interfaces, applications)}
	}
	return []string{s.noProvider(others + s.others)}
}

// noProvider says that a registry has no provider, how many other services it has, and the likely cause.
func (s *state) noProvider(others int) string {
	text := "no Dubbo provider in " + strings.TrimSuffix(strings.TrimSpace(s.place), " service")
	inConsul := s.place == consulPlace
	switch {
	case others == 0 && inConsul:
		return text + ", and no other service: check dc, ns and partition in the address, and that the token may read services"
	case others == 0:
		return text
	}
	text += fmt.Sprintf(", but %d other services", others)
	switch {
	case inConsul:
		text += fmt.Sprintf(": Dubbo's interfaces have the tag %s, applications tags like %s", dubboconsul.Tag, provider.InstanceTag)
	case strings.HasPrefix(s.place, NacosScheme+" "):
		text += "; for these use kind=services in the address"
	}
	return text
}
