package envoy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// sharedRoutes are routes that hosts share: those of a port.
type sharedRoutes struct {
	hosts   btree.Map[string, *virtualHost]
	domains map[string]int // how many virtual hosts have each
	shared  int            // how many domains several have
	whole   bool           // they are told whole to those, too, who ask for virtual hosts
}

// set makes v the virtual host of a host, which has none any more if v is nil.
func (r *sharedRoutes) set(host string, v *virtualHost) {
	if old, ok := r.hosts.Delete(host); ok {
		for _, d := range old.domains {
			if r.domains[d]--; r.domains[d] == 1 {
				r.shared--
			}
			if r.domains[d] == 0 {
				delete(r.domains, d)
			}
		}
	}
	if v == nil {
		return
	}
	r.hosts.Set(host, v)
	for _, d := range v.domains {
		if r.domains == nil {
			r.domains = make(map[string]int)
		}
		if r.domains[d]++; r.domains[d] == 2 {
			r.shared++
		}
	}
}

// encode returns the encoded RouteConfiguration, and which domains hosts do not have there. It is put together from what is encoded already. A
// domain that several have is that of the first host in order of name.
func (r *sharedRoutes) encode(name string, role role, restricted bool) (b []byte, found findings) {
	b = mustMarshal(routesHead(name, role))
	size := 0
	r.hosts.Scan(func(_ string, v *virtualHost) bool { size += len(v.field); return true })
	b = slices.Grow(b, size)
	known := make(map[string]string, r.shared) // by whom
	r.hosts.Scan(func(host string, v *virtualHost) bool {
		if r.shared == 0 {
			b = append(b, v.field...)
			return true
		}
		b = append(b, v.encode(func(d string) bool {
			if r.domains[d] < 2 {
				return false
			}
			by, taken := known[d]
			if !taken {
				known[d] = host
			} else if v.place.of.Name != "" {
				found.note(v.place, "%s is a domain of %s already among the routes %s", d, by, name)
			}
			return taken
		})...)
		return true
	})
	switch {
	case role == proxyless, role == ingress && len(r.domains) > 0:
		return b, found
	case role == ingress:
		return append(b, nobody(name).field...), found
	}
	return append(b, anyOther(restricted).encode(func(d string) bool { return r.domains[d] > 0 })...), found
}

// claimant is a host that claims a binding.
type claimant struct {
	seniority
	host  string
	claim claim
}

// claimants are the hosts that claim a binding, the most senior first.
type claimants []claimant

func (c claimants) find(senior seniority, host string) (int, bool) {
	return slices.BinarySearchFunc(c, claimant{seniority: senior, host: host}, func(a, b claimant) int {
		return cmp.Or(a.compare(b.seniority), strings.Compare(a.host, b.host))
	})
}

// set notes the claim of a host.
func (c *claimants) set(senior seniority, host string, claim claim) {
	i, found := c.find(senior, host)
	if found {
		(*c)[i].claim = claim
		return
	}
	*c = slices.Insert(*c, i, claimant{senior, host, claim})
}

// remove takes the claim of a host away.
func (c *claimants) remove(senior seniority, host string) {
	if i, found := c.find(senior, host); found {
		*c = slices.Delete(*c, i, i+1)
	}
}
