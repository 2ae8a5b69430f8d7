package translate

import (
	"cmp"
	"slices"
	"strings"

	"tributary/server/envoy/model"
)

// claimant is a host that claims a binding.
type claimant struct {
	model.Precedence
	host  string
	claim claim
}

// Claimants are the hosts that claim a binding, the most senior first.
type Claimants []claimant

func (c Claimants) find(senior model.Precedence, host string) (int, bool) {
	return slices.BinarySearchFunc(c, claimant{Precedence: senior, host: host}, func(a, b claimant) int {
		return cmp.Or(a.Compare(b.Precedence), strings.Compare(a.host, b.host))
	})
}

// Set notes the claim of a host.
func (c *Claimants) Set(senior model.Precedence, host string, claim claim) {
	i, found := c.find(senior, host)
	if found {
		(*c)[i].claim = claim
		return
	}
	*c = slices.Insert(*c, i, claimant{senior, host, claim})
}

// Remove takes the claim of a host away.
func (c *Claimants) Remove(senior model.Precedence, host string) {
	if i, found := c.find(senior, host); found {
		*c = slices.Delete(*c, i, i+1)
	}
}
