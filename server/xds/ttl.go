package xds

import (
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// The client features that a TTL needs. In state of the world, a resource must be wrapped to have a TTL; Envoy's documentation
// has two names for that feature.
const (
	featureTTL         = "xds.config.supports-resource-ttl"
	featureWrapped     = "xds.config.resource-in-sotw"
	featureWrappedToo  = "xds.config.supports-resource-in-sotw"
	heartbeatsPerTTL   = 3
	shortestHeartbeats = 100 * time.Millisecond
)

// formOf returns the form of resources with a TTL for a client.
func formOf(node *corev3.Node, delta bool) form {
	has := func(feature string) bool { return slices.Contains(node.GetClientFeatures(), feature) }
	switch {
	case delta && has(featureTTL):
		return formDeltaTTL
	case delta:
		return formDelta
	case has(featureTTL) && (has(featureWrapped) || has(featureWrappedToo)):
		return formSotWWrapped
	default:
		return formSotW
	}
}

// heartbeat returns a message that renews the TTLs of one subscription, if one is due; s.mu is held. The client acknowledges
// heartbeats like responses.
func (s *stream) heartbeat(now time.Time) *frame {
	if s.form == s.form.withoutTTL() {
		return nil
	}
	for _, sub := range s.subs {
		if sub.client.state.minTTL == 0 {
			continue
		}
		every := max(sub.client.state.minTTL/heartbeatsPerTTL, shortestHeartbeats)
		if s.lookAgain(sub.beat.Add(every).Sub(now)) {
			continue
		}
		sub.beat = now
		s.lookAgain(every)
		if beats := sub.heartbeats(s.form); len(beats) > 0 {
			if !sub.outstanding() {
				sub.firstNonce = s.sent + 1
			}
			sub.chunks, sub.beating = beats, true
			return s.emit(sub, now)
		}
	}
	return nil
}

// heartbeats renews the TTLs of what the client has. Where absence deletes (state of the world in full), the response also has the
// resources without a TTL.
func (s *subscription) heartbeats(f form) []*body {
	var mortal, others []*Entry
	for e := range s.client.state.all() {
		switch {
		case !s.wants.includes(e.Name) || s.client.get(e.Name) == nil:
		case e.TTL > 0:
			mortal = append(mortal, e)
		case !s.delta && !s.partial:
			others = append(others, e)
		}
	}
	if len(mortal) == 0 {
		return nil
	}
	beats := encodeRun(mortal, f, true)
	if s.delta || s.partial {
		return beats.bodies([]span{{0, len(mortal)}}, nil)
	}
	b := &body{}
	b.add(newEncoded(beats.bytes), len(mortal))
	b.add(encode(others, f, false), len(others))
	return []*body{b}
}
