package adsc

import (
	"maps"
	"time"
)

// A client that resumes relies on the server to compare its versions. A server that ignores them does not report removals, and the client
// would keep removed resources for ever. So some time after a resumption the client replaces the stream by one without versions, to which
// the server sends everything, and compares.

// resume returns the versions to begin a delta stream with.
func (s *subscription) resume(now time.Time) map[string]string {
	if s.comparing {
		if s.compared == nil {
			s.compared = make(map[string]string, len(s.versions))
		}
		maps.Copy(s.compared, s.versions) // differences that an interrupted comparison found count once
	}
	if s.partial || s.comparing {
		s.versions, s.partial = nil, false
	}
	if len(s.versions) > 0 && s.unverified.IsZero() {
		s.unverified = now
	}
	return maps.Clone(s.versions) // the writer has it while responses come in
}

// verify notes a part of a complete set, and reports whether that ends a compare, and how much was not as it should be.
func (s *subscription) verify(r *Response, rejected rejection) (done bool, healed int) {
	if s.comparing && !rejected.whole {
		for _, res := range r.Resources {
			version, known := s.compared[res.Name]
			delete(s.compared, res.Name)
			if !rejected.of(res.Name) && (!known || version != res.Version) {
				s.healed++
			}
		}
	}
	if r.More || s.refused { // what was refused as a whole comes again on the next stream
		return false, 0
	}
	done, healed = s.comparing, s.healed+len(s.compared)
	s.unverified, s.comparing, s.compared, s.healed = time.Time{}, false, nil, 0
	return done, healed
}

// tooMuch is from how many bytes of names and versions a request may have exceeded the server's limit, which is 4 MiB by default.
const tooMuch = 1 << 20

// dropRefusedVersions has the next stream begin types with nothing of which this one, having ended with err, brought along more than the
// server may have taken. Otherwise it would refuse each of those that follow, too.
func (s *stream) dropRefusedVersions(err error) {
	if !Exhausted(err) {
		return
	}
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	for _, a := range s.exchanges {
		a.sub.comparing = a.sub.comparing || !a.answered && a.brought >= tooMuch
	}
}

// compare has the next stream begin with nothing if something is unverified for long enough, and reports whether that is
// so. All types take part, since those that do not would be resumed, and be next.
func (c *Client) compare(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.compareAt(); at.IsZero() || at.After(now) {
		return false
	}
	for _, sub := range c.subs {
		sub.comparing = sub.comparing || len(sub.versions) > 0
	}
	return true
}

// compareAt returns when the next compare is due, or the zero time. The caller holds mu.
func (c *Client) compareAt() (at time.Time) {
	if c.cfg.CompareAfter <= 0 {
		return at
	}
	for _, sub := range c.subs {
		if len(sub.versions) == 0 || sub.comparing {
			continue // nothing is brought along next time
		}
		if u := sub.unverified; !u.IsZero() && (at.IsZero() || u.Add(c.cfg.CompareAfter).Before(at)) {
			at = u.Add(c.cfg.CompareAfter)
		}
	}
	return at
}
