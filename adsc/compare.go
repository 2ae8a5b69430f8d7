package adsc

import (
	"maps"
	"time"
)

// A client that resumes relies on the server to compare its versions. A server that ignores them does not report
// removals, and the client would keep removed resources for ever. So some time after a resumption the client replaces
// the stream by one without versions. The server then sends all resources, and the client compares.

// resume returns the versions of the first request of a delta stream.
func (s *subscription) resume(now time.Time) map[string]string {
	if s.comparing {
		if s.compared == nil {
			s.compared = make(map[string]string, len(s.versions))
		}
		maps.Copy(s.compared, s.versions) // differences that an interrupted comparison found count once
	}
	if s.isPartial || s.comparing {
		s.versions, s.isPartial = nil, false
	}
	if len(s.versions) > 0 && s.unverified.IsZero() {
		s.unverified = now
	}
	return maps.Clone(s.versions) // the writer uses it while responses arrive
}

// verify compares a part of a complete set. It reports whether the comparison has ended, and the number of differences.
func (s *subscription) verify(response *Response, rejected rejection) (finished bool, healed int) {
	if s.comparing && !rejected.entire {
		for _, received := range response.Resources {
			version, exists := s.compared[received.Name]
			delete(s.compared, received.Name)
			if !rejected.includes(received.Name) && (!exists || version != received.Version) {
				s.healed++
			}
		}
	}
	if response.More || s.isRefused { // the next stream repeats a set that was refused as a whole
		return false, 0
	}
	finished, healed = s.comparing, s.healed+len(s.compared)
	s.unverified, s.comparing, s.compared, s.healed = time.Time{}, false, nil, 0
	return finished, healed
}

// largeVersions is the size of names and versions above which a request may exceed the server's limit, 4 MiB by
// default.
const largeVersions = 1 << 20

// dropRefusedVersions makes the next stream request types without versions if their versions may have exceeded the
// server's limit, and ended this stream with err. Otherwise the server would refuse all following streams, too.
func (s *stream) dropRefusedVersions(err error) {
	if !Exhausted(err) {
		return
	}
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	for _, a := range s.exchanges {
		a.sub.comparing = a.sub.comparing || !a.answered && a.sentVersionBytes >= largeVersions
	}
}

// startComparison reports whether a comparison is due, and makes the next stream request all types without versions. A
// type that took no part would be resumed, and be due next.
func (c *Client) startComparison(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := c.nextComparison(); next.IsZero() || next.After(now) {
		return false
	}
	for _, sub := range c.subs {
		sub.comparing = sub.comparing || len(sub.versions) > 0
	}
	return true
}

// nextComparison returns when the next comparison is due, or the zero time. The caller holds mu.
func (c *Client) nextComparison() (earliest time.Time) {
	if c.cfg.CompareAfter <= 0 {
		return earliest
	}
	for _, subscription := range c.subs {
		if len(subscription.versions) == 0 || subscription.comparing {
			continue // the next stream has no versions of it
		}
		if u := subscription.unverified; !u.IsZero() && (earliest.IsZero() || u.Add(c.cfg.CompareAfter).Before(earliest)) {
			earliest = u.Add(c.cfg.CompareAfter)
		}
	}
	return earliest
}
