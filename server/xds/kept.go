package xds

import "google.golang.org/grpc/codes"

// kept is what is kept of the request that a subscription began with: its versions, until they were looked at.
type kept struct {
	release  func()    // ends the reservation of its memory; nil if it has none
	versions *versions // or nil
	bytes    int       // that have no reservation
}

// give gives what is kept to others; s.mu is held.
func (k *kept) give(s *stream) {
	if k.release != nil {
		k.release()
	}
	k.versions.free()
	s.kept -= k.bytes
	*k = kept{}
}

// maxKept bounds what is kept on one stream of requests that have no reservation, in bytes.
const maxKept = 1 << 20

// keep has the subscription that a request began keep its versions, and the reservation of the memory that they take. What no
// subscription took is given to others.
func (s *stream) keep(req *request) error {
	if req.release == nil && req.initial == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := kept{release: req.release, versions: req.initial}
	if req.release == nil {
		k.bytes = req.size
	}
	s.kept += k.bytes
	for _, sub := range s.subs {
		if !s.closed && req.initial != nil && sub.has.brought == req.initial {
			sub.kept = k
			if s.kept > maxKept {
				return s.server.refuse(refusedRequestMemory, codes.ResourceExhausted,
					"versions of %d bytes in small requests, that were not looked at yet: the limit is %d", s.kept, maxKept)
			}
			return nil
		}
	}
	k.give(s)
	return nil
}

// passOn gives to others what is kept of versions that were looked at.
func (s *stream) passOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		if sub.kept.versions != nil && sub.has.brought == nil {
			sub.kept.give(s)
		}
	}
}
