package envoy

import (
	"iter"
	"slices"

	"tributary/resource"
	"tributary/server/envoy/index"
)

// tellApart divides clients by what objects look at now. When it returns, each of them is sent nothing new until it has the scope of
// its profile.
func (c *Catalog) tellApart() {
	c.mu.Lock()
	grown := c.mesh.Selectors.Grown
	changed, review := grown != c.apart, c.review
	c.apart = grown
	c.mu.Unlock()
	if changed && review != nil {
		review()
	}
}

// looksAtPlaces says whether some object does, or some of those that come.
func (c *Catalog) looksAtPlaces(coming []index.Labels) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mesh.Selectors.Kinds[index.OfPlaces] > 0 || slices.ContainsFunc(coming, func(l index.Labels) bool {
		_, is := l[index.Label{Of: index.OfPlaces}]
		return is
	})
}

// foresee divides clients by what objects look at that are about to come, before these are served: no client loses what it got by one
// label to get the same by another. So they are divided by what objects look at that are about to go, until all scopes are without
// those: a client that asks meanwhile gets no scope that is yet to get what another one has. What it returns is to be called when they
// have come.
func (c *Catalog) foresee(objects iter.Seq[*resource.Resource]) (come func()) {
	var all []index.Labels
	for r := range objects {
		if r.Key().Kind == resource.ServiceEntry {
			all = append(all, index.LookedAtByEntry(r.Key().Namespace, index.ExportedTo(r.Body())))
		}
		if !slices.Contains(index.Selecting, r.Key().Kind) {
			continue
		}
		if spec, err := r.Spec(); err == nil { // else it is not served
			all = append(all, index.LookedAt(r, spec))
		}
	}
	if c.looksAtPlaces(all) {
		for r := range objects {
			if kind := r.Key().Kind; kind == resource.ServiceEntry || kind == resource.WorkloadEntry {
				all = append(all, index.SitesOfObject(r))
			}
		}
	}
	each := func(do func(*index.SelectorIndex, index.Labels)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, l := range all {
			do(c.mesh.Selectors, l)
		}
	}
	each((*index.SelectorIndex).Hold)
	c.tellApart()
	return func() {
		each((*index.SelectorIndex).Release)
		c.tellApart()
	}
}
