package dubbo

import (
	"maps"
	"slices"
	"strings"

	"tributary/sources"
	"tributary/sources/dubbo/provider"
)

// leftGroup is before the name of an application in the name of the group that says what of its instances is left out. There is never
// anything else in such a group: of what these instances serve, as far as that is known, the groups of interfaces have the rest.
const leftGroup = "instances of "

// leftOut returns of the applications of which that changed what of their instances is left out, as the sink takes it. The caller holds mu.
func (r *run) leftOut() (all []sources.Content) {
	now := map[string][]sources.LeftOut{}
	for name, a := range r.state.applications {
		if left := r.state.leftOf(name, a); len(left) > 0 {
			now[name] = left
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.left)) {
		if now[name] == nil {
			all = append(all, sources.Content{Group: leftGroup + name, Explained: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if !slices.Equal(now[name], r.left[name]) {
			all = append(all, sources.Content{Group: leftGroup + name, LeftOut: now[name], Explained: true})
		}
	}
	r.left = now
	return all
}

// leftOf returns what is left out of the instances of an application, and of what their metadata say.
func (s *state) leftOf(name string, a *application) (all []sources.LeftOut) {
	reported := map[*resolution]bool{}
	for _, id := range slices.Sorted(maps.Keys(a.instances)) {
		i := a.instances[id]
		if why := s.whyLeft(i); why != "" {
			all = append(all, sources.LeftOut{What: i.id, Of: name, Why: why})
		}
		if n := i.needs; n != nil && n.metadata != nil {
			for _, err := range i.Uncallable(*n.metadata) {
				all = append(all, sources.LeftOut{What: i.id, Of: name, Why: err.Error()})
			}
			if !reported[n] {
				reported[n] = true
				for _, w := range n.warnings {
					all = append(all, sources.LeftOut{What: "revision " + provider.Shorten(n.of.revision), Of: name, Why: w})
				}
			}
		}
	}
	return all
}

// whyLeft is why nothing is served of an instance; empty if something is, if it is not to serve anything, or if that is about to be found
// out.
func (s *state) whyLeft(i *instance) string {
	n := i.needs
	switch {
	case i.Failing != "":
		return i.Failing
	case len(i.providers) > 0 || i.Off:
		return ""
	case i.problem != "":
		return strings.TrimPrefix(i.problem, problemOf(i))
	case n == nil || n.metadata != nil || s.knows(i):
		return ""
	case n.excess != "":
		return n.excess
	case n.failed >= someTries:
		return "what it serves is not known: " + n.reason()
	}
	return ""
}
