package dubbo

import (
	"fmt"
	"slices"
	"strings"
)

// nothing says that nothing is served, and what there is instead; empty if something is. What is not there, such as the group of a slip of the pen, is to a registry
// as what is empty: nobody else says a word of it.
func (s *state) nothing() (all []string) {
	if len(s.records) > 0 {
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
		return []string{fmt.Sprintf("nothing is served: there are %d interfaces and %d applications of Dubbo, and none has a provider that the settings select", interfaces, applications)}
	}
	text := "there is no provider of Dubbo in " + strings.TrimSuffix(strings.TrimSpace(s.place), " service")
	if others > 0 {
		text += fmt.Sprintf(", but %d other services", others)
		if strings.HasPrefix(s.place, NacosScheme+" ") {
			text += ", which kind=services in the address is for"
		}
	}
	return []string{text}
}
