package registry

import (
	"cmp"
	"maps"
	"slices"

	"tributary/sources/dubbo/provider"
)

// Claims are what is registered as instances of one application, by place, which is a host and port. A process may have left an instance
// behind, and others may register the place as something else, or as something that cannot be read: of several at one place one counts.
type Claims map[string]Claim

// Claim is what is registered at a place.
type Claim struct {
	provider.Instance
	Dubbo bool  // else it is an instance of something else
	Err   error // why it cannot be read, or nil
}

// compare puts first what counts of two.
func (c *Claim) compare(o *Claim) int {
	rank := func(c *Claim) int {
		switch {
		case c.Err != nil:
			return 4 // it may be Dubbo's
		case !c.Dubbo:
			return 5
		case c.Off:
			return 3
		case c.Failing != "":
			return 2
		case c.Silent:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(c), rank(o)), cmp.Compare(o.Timestamp, c.Timestamp))
}

// Add adds what is registered at a place under a name of its own. What does not count and cannot be read is told of by that name.
func (all Claims) Add(place, name string, c Claim) {
	if loser, beaten := all.add(place, c); beaten && loser.Err != nil {
		all.add(place+" "+provider.Shorten(name), loser)
	}
}

func (all Claims) add(place string, c Claim) (loser Claim, beaten bool) {
	other, there := all[place]
	if there && other.compare(&c) <= 0 {
		return c, true
	}
	all[place] = c
	return other, there
}

// Tell tells of all of them, and with err that there may be more.
func (all Claims) Tell(to Listener, application string, err error) {
	places := slices.Sorted(maps.Keys(all))
	to.Instances(application, places, err)
	for _, place := range places {
		if c := all[place]; c.Dubbo || c.Err != nil {
			to.Instance(application, place, &c.Instance, c.Err)
		} else {
			to.Instance(application, place, nil, nil)
		}
	}
}
