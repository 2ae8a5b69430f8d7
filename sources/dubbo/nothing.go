package dubbo

import (
	"fmt"
	"slices"
	"strings"

	registered "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/provider"
)

// nothing says that nothing is served, and what there is instead; empty if something is. What is not there, such as the group of a slip of
// the pen, is to a registry as what is empty: nobody else says a word of it.
func (s *state) nothing() (all []string) {
	if services, _ := s.Services(); services > 0 {
		return nil
	}
	applications, others := s.left[ofApplications], 0
	for _, a := range s.applications {
		if len(a.instances) == 0 || slices.ContainsFunc(a.list(), func(i *instance) bool { return !i.read || i.dubbo }) {
			applications++
		} else {
			others++
		}
	}
	if interfaces := len(s.interfaces) + s.left[ofInterfaces]; interfaces+applications > 0 {
		return []string{fmt.Sprintf("nothing is served: there are %d interfaces and %d applications of Dubbo, and none has a provider that the "+
			"settings select", interfaces, applications)}
	}
	return []string{s.noProvider(others + s.others)}
}

// noProvider says that a registry has none, what else it has, and what may be behind that.
func (s *state) noProvider(others int) string {
	text := "there is no provider of Dubbo in " + strings.TrimSuffix(strings.TrimSpace(s.place), " service")
	inConsul := s.place == consulPlace
	switch {
	case others == 0 && inConsul:
		return text + ", and no other service: its address may name another dc, ns or partition than is meant, or the token may not read services"
	case others == 0:
		return text
	}
	text += fmt.Sprintf(", but %d other services", others)
	switch {
	case inConsul:
		text += fmt.Sprintf(": those of interfaces have the tag %s, and those of applications tags like %s", registered.Tag, provider.InstanceTag)
	case strings.HasPrefix(s.place, NacosScheme+" "):
		text += ", which kind=services in the address is for"
	}
	return text
}
