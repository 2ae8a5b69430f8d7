package adsc

import (
	"maps"
	"time"
)

// subscription is the state of a Subscription. It lives as long as the client: versions survive a reconnect, nonces do
// not. Client.mu guards it.
type subscription struct {
	typeURL string
	handler Handler

	selection selection
	// keptSelection is the part of the selection that did not change since the last request.
	keptSelection selection
	// handledSelection is the part of the selection that did not change since the last call of the handler: the caller may
	// have dropped resources that were removed during that call.
	handledSelection selection
	synced           bool

	version string // SotW: of the last response that the handler took, to resume with
	// hasChanged says that the selection differs from the first request of the stream: a response may be for either of
	// them.
	hasChanged bool
	// versions of the resources that the handler took, by name; delta only.
	versions map[string]string
	// isPartial says that versions are of a complete set that has not ended, or of which a response was rejected as a
	// whole: the next stream cannot use them, since removals are unknown.
	isPartial bool
	isRefused bool // a response of the last complete set was rejected as a whole

	// unverified is the time since which the versions were not compared with the server's; zero if they were.
	unverified time.Time
	// compared are the versions before a running comparison, without confirmed ones; nil without a comparison.
	compared  map[string]string
	comparing bool // the next stream sends no versions
	healed    int  // differences that were found
}

func newSubscription(s Subscription) *subscription {
	sub := &subscription{typeURL: s.TypeURL, versions: s.Versions, selection: selectionOf(s.Names)}
	sub.configure(s)
	return sub
}

// configure applies another Subscription of the type. It forgets resources that are no longer selected: the caller does
// the same, and gets them again if it selects them again.
func (s *subscription) configure(settings Subscription) {
	s.handler = settings.Handler
	selection := selectionOf(settings.Names)
	s.keptSelection, s.handledSelection = s.keptSelection.intersect(selection), s.handledSelection.intersect(selection)
	if !selection.equal(s.selection) {
		s.version, s.hasChanged = "", true // with a version, a server may send no unchanged resource
	}
	s.selection = selection
	covers := selection.covers()
	for _, versions := range []map[string]string{s.versions, s.compared} {
		maps.DeleteFunc(versions, func(name, _ string) bool { return !covers(name) })
	}
}

// due reports whether a server needs another request after this last one.
func (s *subscription) due(sent selection) bool {
	return !sent.equal(s.selection) || !sent.equal(s.keptSelection)
}

// nextSelection returns the selection of the next request. The client has forgotten a name that was dropped and
// selected again meanwhile. The server only sends it again if a request drops it first.
func (s *subscription) nextSelection(sent selection) selection {
	if s.keptSelection.equal(sent.intersect(s.selection)) {
		s.keptSelection = s.selection
	}
	return s.keptSelection
}

// recordVersions notes the versions of a response, except for rejected resources. first says that it begins a complete
// set.
func (s *subscription) recordVersions(response *Response, first bool, rejected rejection) {
	if !response.Delta {
		s.versions, s.isPartial, s.isRefused = nil, false, false
		s.unverified, s.comparing, s.compared = time.Time{}, false, nil // a response has all resources
		if rejected.err == nil && !s.hasChanged {
			s.version = response.Version
		}
		return
	}
	s.version = ""
	if s.versions == nil {
		s.versions = make(map[string]string, len(response.Resources))
	}
	if !rejected.entire {
		covers := s.handledSelection.covers()
		for _, resource := range response.Resources {
			if !rejected.includes(resource.Name) && covers(resource.Name) {
				s.versions[resource.Name] = resource.Version
			}
		}
		for _, name := range response.Removed {
			delete(s.versions, name)
		}
		for i := range response.Resources {
			// The caller may have an earlier version of a rejected resource, from before this set. With an empty version in
			// the next request, the server reports its removal.
			name := response.Resources[i].Name
			if _, exists := s.versions[name]; !exists && rejected.includes(name) && covers(name) {
				s.versions[name] = ""
			}
		}
	}
	if response.Complete {
		s.isRefused = s.isRefused && !first || rejected.entire
		s.isPartial = s.isRefused || response.More
	}
}
