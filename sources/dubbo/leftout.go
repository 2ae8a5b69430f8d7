package dubbo

import (
	"maps"
	"slices"
	"strings"

	"tributary/sources"
	"tributary/sources/dubbo/provider"
)

// leftGroup precedes the name of an application in the group that lists its left-out instances, and nothing else.
const leftGroup = "instances of "

// leftOut returns the groups of the applications whose left-out instances changed. The caller holds mu.
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

// leftOf returns the left-out instances of an application, and the left-out services in their metadata.
func (s *state) leftOf(name string, a *application) (all []sources.LeftOut) {
	reported := map[*lookup]bool{}
	for _, id := range slices.Sorted(maps.Keys(a.instances)) {
		i := a.instances[id]
		if why := s.whyLeft(i); why != "" {
			all = append(all, sources.LeftOut{What: i.id, Of: name, Why: why})
		}
		if l := i.lookup; l != nil && l.metadata != nil {
			_, others := i.Offers(*l.metadata)
			for _, err := range others {
				all = append(all, sources.LeftOut{What: i.id, Of: name, Why: err.Error()})
			}
			if !reported[l] {
				reported[l] = true
				for _, w := range l.warnings {
					all = append(all, sources.LeftOut{What: "revision " + provider.Shorten(l.of.revision), Of: name, Why: w})
				}
			}
		}
	}
	return all
}

// whyLeft returns why nothing of an instance is served; empty if something is, if it is switched off, or while its lookup is new.
func (s *state) whyLeft(i *instance) string {
	l := i.lookup
	switch {
	case i.Failing != "":
		return i.Failing
	case len(i.providers) > 0 || i.Off:
		return ""
	case i.problem != "":
		return strings.TrimPrefix(i.problem, problemOf(i))
	case l == nil || l.metadata != nil || s.knows(i):
		return ""
	case l.overLimit != "":
		return l.overLimit
	case l.failed >= reportAfter:
		return "metadata cannot be read: " + l.reason()
	}
	return ""
}
