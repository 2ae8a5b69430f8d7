package adsc

import (
	"maps"
	"time"
)

// A client that resumes relies on the server to compare its versions. A server that ignores them does not report
// removals, and the client would keep removed resources for ever. So some time after a resumption the client replaces
// the stream by one without versions. The server then sends all resources, and the client compares.

// startDelta returns the versions for the first request of a delta stream. If a comparison is due, it returns none,
// and the comparison begins.
func (s *subscription) startDelta(now time.Time) map[string]string {
	if s.comparing {
		if s.unconfirmed == nil {
			s.unconfirmed = make(map[string]string, len(s.versions))
		}
		maps.Copy(s.unconfirmed, s.versions) // differences that an interrupted comparison found count once
	}
	if s.hasPartialSet || s.comparing {
		s.versions = nil
		s.hasPartialSet = false
	}
	if len(s.versions) > 0 && s.unverifiedSince.IsZero() {
		s.unverifiedSince = now
	}
	return maps.Clone(s.versions) // the writer uses it while responses arrive
}

// compare compares a part of a complete set. It reports whether the comparison has ended, and its differences.
func (s *subscription) compare(response *Response, rejected rejection) (finished bool, differences int) {
	if s.comparing && !rejected.entire {
		for _, received := range response.Resources {
			version, exists := s.unconfirmed[received.Name]
			delete(s.unconfirmed, received.Name)
			if !rejected.includes(received.Name) && (!exists || version != received.Version) {
				s.differences++
			}
		}
	}
	if response.More || s.refusedSet { // the next stream repeats a set that was refused as a whole
		return false, 0
	}
	finished = s.comparing
	differences = s.differences + len(s.unconfirmed) // the rest was removed
	s.endComparison()
	return finished, differences
}

// endComparison notes that the versions are those of the server.
func (s *subscription) endComparison() {
	s.unverifiedSince = time.Time{}
	s.comparing = false
	s.unconfirmed = nil
	s.differences = 0
}

// largeVersions is the size of names and versions above which a request may exceed the server's limit, 4 MiB by
// default.
const largeVersions = 1 << 20

// omitLargeVersions makes the next stream request types without versions if their versions may have exceeded the
// server's limit, and ended this stream with err. Otherwise the server would refuse all following streams, too.
func (s *stream) omitLargeVersions(err error) {
	if !Exhausted(err) {
		return
	}
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	for _, exchange := range s.exchanges {
		if !exchange.hasResponse && exchange.sentVersionBytes >= largeVersions {
			exchange.subscription.comparing = true
		}
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
	for _, subscription := range c.subscriptions {
		if len(subscription.versions) > 0 {
			subscription.comparing = true
		}
	}
	return true
}

// nextComparison returns when the next comparison is due, or the zero time. The caller holds mu.
func (c *Client) nextComparison() (earliest time.Time) {
	if c.cfg.CompareAfter <= 0 {
		return earliest
	}
	for _, subscription := range c.subscriptions {
		if len(subscription.versions) == 0 || subscription.comparing || subscription.unverifiedSince.IsZero() {
			continue // the next stream has no versions of it, or they were compared
		}
		due := subscription.unverifiedSince.Add(c.cfg.CompareAfter)
		if earliest.IsZero() || due.Before(earliest) {
			earliest = due
		}
	}
	return earliest
}
