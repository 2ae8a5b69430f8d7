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

func (c claimant) compare(other claimant) int {
	return cmp.Or(c.Compare(other.Precedence), strings.Compare(c.host, other.host))
}

// Claimants are the hosts that claim a binding.
type Claimants struct {
	sorted []claimant
	added  []claimant // since Sorted was last called: a first translation adds thousands
}

// Set sets the claim of a host, which is set or removed once between two calls of Sorted.
func (c *Claimants) Set(p model.Precedence, host string, claim claim) {
	added := claimant{p, host, claim}
	if i, exists := slices.BinarySearchFunc(c.sorted, added, claimant.compare); exists {
		c.sorted[i] = added
		return
	}
	c.added = append(c.added, added)
}

// Remove removes the claim of a host.
func (c *Claimants) Remove(p model.Precedence, host string) {
	if i, exists := slices.BinarySearchFunc(c.sorted, claimant{Precedence: p, host: host}, claimant.compare); exists {
		c.sorted = slices.Delete(c.sorted, i, i+1)
	}
}

// Sorted returns the claims, highest precedence first. The caller does not modify them.
func (c *Claimants) Sorted() []claimant {
	if len(c.added) > 0 {
		c.sorted = append(c.sorted, c.added...)
		slices.SortFunc(c.sorted, claimant.compare)
		c.added = nil
	}
	return c.sorted
}

// Taken returns findings that none of the claims is served, with the reason.
func Taken(claims []claimant, reason string) (findings model.Findings) {
	for _, c := range claims {
		findings.Note(c.claim.place, "%s", reason)
	}
	return findings.Sorted()
}
