package backend

import (
	"cmp"
	"maps"
	"slices"

	"tributary/sources/dubbo/provider"
)

// Claims holds the registrations of an application by host:port. A stale instance or another framework may use the same
// address; the best claim wins.
type Claims map[string]Claim

// Claim is a registration at an address.
type Claim struct {
	provider.Instance
	Dubbo bool  // false for a registration of another framework
	Err   error // why the registration cannot be read, or nil
}

// compare orders claims, best first.
func (c *Claim) compare(claim *Claim) int {
	rank := func(c *Claim) int {
		switch {
		case c.Err != nil:
			return 4 // it may be a registration of Dubbo
		case !c.Dubbo:
			return 5
		case c.Off:
			return 3
		case c.Failing != "":
			return 2
		case c.Unverified:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(c), rank(claim)), cmp.Compare(claim.Timestamp, c.Timestamp))
}

// Add adds a registration at an address. A losing one that cannot be read stays under its own name, to be reported.
func (claims Claims) Add(place, name string, c Claim) {
	if loser, beaten := claims.add(place, c); beaten && loser.Err != nil {
		claims.add(place+" "+provider.Shorten(name), loser)
	}
}

func (claims Claims) add(place string, claim Claim) (loser Claim, beaten bool) {
	existing, exists := claims[place]
	if exists && existing.compare(&claim) <= 0 {
		return claim, true
	}
	claims[place] = claim
	return existing, exists
}

// Deliver delivers all claims to a listener. err is the error of the list of instances.
func (claims Claims) Deliver(listener Listener, application string, err error) {
	places := slices.Sorted(maps.Keys(claims))
	listener.Instances(application, places, err)
	for _, place := range places {
		c := claims[place]
		listener.Instance(application, place, c.Instance, c.Dubbo, c.Err)
	}
}
