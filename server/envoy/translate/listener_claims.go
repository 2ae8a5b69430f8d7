package translate

import (
	"cmp"
	"slices"
	"strings"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Claim is a service's need of a listener at a binding.
type Claim struct {
	model.Binding

	place    model.Place // of the port
	late     bool        // served only where no other claim holds the binding
	protocol model.Protocol
	routes   []l4Route // none for HTTP
}

// Equal reports whether both are the same.
func (c Claim) Equal(o Claim) bool {
	return c.Binding == o.Binding && c.place == o.place && c.late == o.late && c.protocol == o.protocol &&
		slices.EqualFunc(c.routes, o.routes, l4Route.equal)
}

// isLimited reports whether the claim is for some ranges of addresses only.
func (c Claim) isLimited() bool {
	return !slices.ContainsFunc(c.routes, func(r l4Route) bool { return len(r.subnets) == 0 })
}

// limitedTo returns the claim limited to some ranges of addresses, except for routes that have their own.
func (c Claim) limitedTo(ranges []string) Claim {
	c.routes = slices.Clone(c.routes)
	for i := range c.routes {
		if len(c.routes[i].subnets) == 0 {
			c.routes[i].subnets = ranges
		}
	}
	return c
}

// claimsOf returns the claims of a port of the service for sidecars of the profile. HTTP has one listener for each
// port, whose routes distinguish all services by host. Without interception all listeners are on the loopback
// interface; with it, listeners of other protocols have the addresses of the service, if it has any.
func claimsOf(view *model.View, port *model.Port, findings *model.Findings) (claims []Claim) {
	claim := Claim{
		place: port.Place(), late: port.Late, protocol: port.Spoken, routes: l4Routes(view, port, findings),
	}
	hasServers := func(route l4Route) bool { return len(route.servers) > 0 }
	if claim.protocol == model.ProtocolTLS && !slices.ContainsFunc(claim.routes, hasServers) {
		claim.protocol = model.ProtocolTCP
	}
	switch {
	case port.Bind != "":
		return []Claim{claim.withBinding(port.Bind, port)}
	case !view.Client.Captures:
		return []Claim{claim.withBinding(model.Localhost, port)}
	case port.Spoken.HTTP():
		return []Claim{claim.withBinding(model.Wildcard, port)}
	}
	for _, address := range view.Service.Addresses {
		if resource.IsAddress(address) {
			claims = append(claims, claim.withBinding(address, port))
		}
	}
	if len(claims) == 0 {
		claims = append(claims, claim.limitedTo(view.Service.Ranges()).withBinding(model.Wildcard, port))
	}
	return claims
}

// withBinding returns the claim of the binding of an address and a port.
func (c Claim) withBinding(address string, port *model.Port) Claim {
	c.Binding = model.Binding{Address: address, Port: port.Number}
	return c
}

// claimant is a host that claims a binding.
type claimant struct {
	model.Precedence
	host  string
	claim Claim
}

func (c claimant) compare(second claimant) int {
	return cmp.Or(c.Compare(second.Precedence), strings.Compare(c.host, second.host))
}

// Claimants are the hosts that claim a binding.
type Claimants struct {
	sorted []claimant
	added  []claimant // since Sorted was last called: a first translation adds thousands
}

// Set sets the claim of a host, which is set or removed once between two calls of Sorted.
func (c *Claimants) Set(p model.Precedence, host string, claim Claim) {
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

// mergedClaims are the claims of a binding as one listener serves them.
type mergedClaims struct {
	routes      string // the name of the routes of HTTP; empty if no claim has HTTP
	detects     bool   // HTTP is recognized by its first bytes; else all connections have HTTP
	connections []claimant
	refused     []claimant
}

// mergeClaims merges claims as istiod does. At the wildcard address, HTTP is detected beside all other protocols. At
// another address, a first claim with HTTP has all connections; after other claims, only detected HTTP has a place.
// Ranges of addresses distinguish TCP connections; the first claim without ranges has the others.
func mergeClaims(binding model.Binding, claims []claimant) (merged mergedClaims) {
	isWildcard := binding.Address == model.Wildcard
	hasUnlimited := false // a claim without ranges has the other TCP connections
	for i, candidate := range claims {
		protocol := candidate.claim.protocol
		otherLateness := candidate.claim.late != claims[0].claim.late
		onlyHTTP := merged.routes != "" && !merged.detects
		switch {
		case otherLateness:
			merged.refused = append(merged.refused, candidate)
		case protocol.HTTP() && (isWildcard || i == 0 || onlyHTTP):
			merged.routes = model.RouteName(binding.Port)
			merged.detects = isWildcard
		case protocol.HTTP(), onlyHTTP, protocol == model.ProtocolDetected && merged.routes != "",
			protocol != model.ProtocolTLS && hasUnlimited && !candidate.claim.isLimited():
			merged.refused = append(merged.refused, candidate)
		default:
			merged.connections = append(merged.connections, candidate)
			hasUnlimited = hasUnlimited || protocol != model.ProtocolTLS && !candidate.claim.isLimited()
		}
		if protocol == model.ProtocolDetected && merged.routes == "" && !otherLateness {
			merged.detects = true
			merged.routes = detectedRoutes(candidate.host, binding.Port)
			if isWildcard {
				merged.routes = model.RouteName(binding.Port)
			}
		}
	}
	return merged
}
