package xds

import (
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// The client features that a TTL needs. In state of the world a resource must be wrapped to carry one; the
// documentation of Envoy names that feature in two ways.
const (
	featureTTL         = "xds.config.supports-resource-ttl"
	featureWrapped     = "xds.config.resource-in-sotw"
	featureWrappedToo  = "xds.config.supports-resource-in-sotw"
	heartbeatsPerTTL   = 3
	shortestHeartbeats = 100 * time.Millisecond
)

// formOf returns how a client is sent resources that have a TTL.
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

// heartbeat returns a message that renews the TTLs of one subscription, if one is due, and else after what time to look
// again; s.mu is held. A heartbeat is a response of its own: the client acknowledges it.
func (s *stream) heartbeat(now time.Time) (out *frame, wait time.Duration) {
	if s.form == s.form.withoutTTL() {
		return nil, 0
	}
	for _, sub := range s.subs {
		if sub.state == nil || sub.state.minTTL == 0 {
			continue
		}
		every := max(sub.state.minTTL/heartbeatsPerTTL, shortestHeartbeats)
		if left := sub.beat.Add(every).Sub(now); left > 0 {
			wait = minPositive(wait, left)
			continue
		}
		sub.beat = now
		wait = minPositive(wait, every)
		if b := sub.heartbeat(s.form); b.count > 0 {
			sub.chunks = []*body{b}
			return s.emit(sub, now), 0
		}
	}
	return nil, wait
}

// heartbeat renews what the client has. A state-of-the-world response must go on naming everything, so what has no TTL
// goes along whole where absence would delete it.
func (s *subscription) heartbeat(f form) *body {
	var mortal, others []*Entry
	for e := range s.state.all() {
		switch {
		case !s.covers(e.Name):
		case e.TTL > 0:
			mortal = append(mortal, e)
		case !s.isDelta && !s.coll.typ.Partial:
			others = append(others, e)
		}
	}
	b := &body{}
	if len(mortal) > 0 {
		b.add(encode(mortal, f, true), len(mortal))
		b.add(encode(others, f, false), len(others))
	}
	return b
}
