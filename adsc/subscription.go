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
	// retainedSinceRequest is the part of the selection that was selected at the last request and ever since. A name that
	// was removed and added again in between is not in it.
	retainedSinceRequest selection
	// retainedSinceHandler is the part of the selection that was selected at the last call of the handler and ever since:
	// the caller may have forgotten resources that were removed from the selection during that call.
	retainedSinceHandler selection
	synced               bool // a server has sent all resources once

	version string // SotW: of the last response that the handler accepted, for the next stream
	// changedOnStream says that the selection differs from the first request of the stream: a response may be for either
	// of them.
	changedOnStream bool
	// versions of the resources that the handler accepted, by name; delta only.
	versions map[string]string
	// hasPartialSet says that versions are those of an unfinished or refused set. The next stream cannot use them, since
	// removals are unknown.
	hasPartialSet bool
	refusedSet    bool // the handler rejected a whole response of the last complete set

	// The comparison of versions, see resume_check.go.
	unverifiedSince time.Time         // the first stream that resumed with uncompared versions; zero without any
	comparing       bool              // a comparison is due or unfinished: the next stream sends no versions
	unconfirmed     map[string]string // the versions that a comparison still has to find; nil without one
	differences     int               // the number of differences that the comparison has found
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
	s.retainedSinceRequest = s.retainedSinceRequest.intersect(selection)
	s.retainedSinceHandler = s.retainedSinceHandler.intersect(selection)
	if !selection.equal(s.selection) {
		s.version = "" // for a known version, a server may omit unchanged resources
		s.changedOnStream = true
	}
	s.selection = selection
	covers := selection.covers()
	for _, versions := range []map[string]string{s.versions, s.unconfirmed} {
		maps.DeleteFunc(versions, func(name, _ string) bool { return !covers(name) })
	}
}

// needsRequest reports whether another request has to follow the one that requested a selection.
func (s *subscription) needsRequest(requested selection) bool {
	return !requested.equal(s.selection) || !requested.equal(s.retainedSinceRequest)
}

// nextSelection returns the selection for the next request. The server sends a resource again only if one request
// unsubscribes from it and a later one subscribes to it. So a name that was removed and added again takes two requests:
// the first one is without the name.
func (s *subscription) nextSelection(requested selection) selection {
	if s.retainedSinceRequest.equal(requested.intersect(s.selection)) {
		s.retainedSinceRequest = s.selection
	}
	return s.retainedSinceRequest
}

// recordVersions records the versions of a response, except for rejected resources.
func (s *subscription) recordVersions(message *serverResponse, rejected rejection) {
	if !message.Delta {
		s.versions = nil
		s.hasPartialSet = false
		s.refusedSet = false
		s.endComparison() // a response has all resources
		if rejected.err == nil && !s.changedOnStream {
			s.version = message.Version
		}
		return
	}
	s.version = ""
	if s.versions == nil {
		s.versions = make(map[string]string, len(message.Resources))
	}
	if !rejected.entire {
		s.recordResources(&message.Response, rejected)
	}
	if message.Complete {
		s.refusedSet = s.refusedSet && !message.beginsSet || rejected.entire
		s.hasPartialSet = s.refusedSet || message.More
	}
}

// recordResources records the versions of a delta response that the handler accepted at least in part.
func (s *subscription) recordResources(response *Response, rejected rejection) {
	covers := s.retainedSinceHandler.covers()
	for _, resource := range response.Resources {
		if !rejected.includes(resource.Name) && covers(resource.Name) {
			s.versions[resource.Name] = resource.Version
		}
	}
	for _, name := range response.Removed {
		delete(s.versions, name)
	}
	for i := range response.Resources {
		// The caller may have an earlier version of a rejected resource, from before this set. With an empty version in the
		// next request, the server reports its removal.
		name := response.Resources[i].Name
		if _, exists := s.versions[name]; !exists && rejected.includes(name) && covers(name) {
			s.versions[name] = ""
		}
	}
}
