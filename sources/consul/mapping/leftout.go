package mapping

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/sources"
)

// LeftOut returns the instances of a service that are not served, and why.
func (m *Mapper) LeftOut(name string, in []Service) (all []sources.LeftOut) {
	for _, s := range in {
		for _, e := range s.Entries {
			why := ""
			i := m.instanceOf(s.Datacenter, e, func(_ *instance, what string) { why = cmp.Or(why, what) })
			if i == nil || i.served {
				continue
			}
			node := e.Node
			if node == nil {
				node = &api.Node{}
			}
			address, port := m.addressOf(e.Service, node)
			if port = cmp.Or(port, e.Service.Port); port != 0 {
				address = net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(port))
			}
			switch {
			case i.address == "" || len(i.ports) == 0:
			case i.weight == 0:
				why = "weight 0"
			default:
				why = "checks are " + e.Checks.AggregatedStatus()
			}
			all = append(all, sources.LeftOut{What: address, Of: name, Why: why})
		}
	}
	return all
}
