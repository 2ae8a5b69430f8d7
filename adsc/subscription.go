package adsc

import (
	"slices"

	"google.golang.org/protobuf/types/known/anypb"
)

// subscription is a Subscription and how far it got. What is remembered lives as long as the client: versions survive a
// reconnect, nonces do not.
type subscription struct {
	typeURL string // read-only

	// Guarded by Client.mu.
	handler Handler
	follow  bool
	names   []string // sorted, each once; none means all, or nothing if follow
	synced  bool

	// Owned by Run.
	version string // SotW: of the last response that the handler took
	// versions are those of the resources that were received, by name; delta only.
	versions map[string]string
	// partial says that versions are those of a first response whose end never came: they are of no use then, since it
	// is not known what has gone.
	partial  bool
	children map[string][]string // of a type that others follow: the names that each resource refers to
}

func newSubscription(s Subscription) *subscription {
	return &subscription{
		typeURL: s.TypeURL, handler: s.Handler, follow: s.Follow, names: sortedSet(s.Names), versions: s.Versions,
	}
}

// resume returns the versions to begin a delta stream with.
func (s *subscription) resume(names []string) map[string]string {
	if s.partial {
		s.versions, s.partial = nil, false
	}
	if len(names) > 0 && !slices.Contains(names, "*") {
		for name := range s.versions {
			if _, asked := slices.BinarySearch(names, name); !asked {
				delete(s.versions, name)
			}
		}
	}
	return s.versions
}

// take notes what was received.
func (s *subscription) take(r *Response, rejected error) {
	if !r.Delta {
		s.versions = nil
		if rejected == nil {
			s.version = r.Version
		}
		return
	}
	s.version = ""
	if s.versions == nil {
		s.versions = make(map[string]string, len(r.Resources))
	}
	for i := range r.Resources {
		s.versions[r.Resources[i].Name] = r.Resources[i].Version
	}
	for _, name := range r.Removed {
		delete(s.versions, name)
	}
	s.partial = r.Complete && r.More
}

// refer notes what the resources of a response refer to, and returns all that is referred to. first says that r begins a
// complete set.
func (s *subscription) refer(r *Response, first bool, childrenOf func(*anypb.Any) (parent string, children []string)) []string {
	if s.children == nil || first {
		s.children = make(map[string][]string)
	}
	for i := range r.Resources {
		parent, children := childrenOf(r.Resources[i].Body)
		s.children[parent] = children
	}
	for _, name := range r.Removed {
		delete(s.children, name)
	}
	var all []string
	for _, children := range s.children {
		all = append(all, children...)
	}
	return sortedSet(all)
}

// sortedSet returns names in order, each once.
func sortedSet(names []string) []string {
	set := slices.Clone(names)
	slices.Sort(set)
	return slices.Compact(set)
}
