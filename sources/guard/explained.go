package guard

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// ApplyExplained is Apply for losses the source saw one by one while its registry was healthy. They start a hold like others. They join a
// hold only if it grew within the last window, or if they alone exceed the limits; otherwise ordinary removals would pile up in it until
// released.
func (g *Guard) ApplyExplained(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	return g.apply(puts, deletes, true)
}

// join returns the losses that join the hold, or their share that does. The caller holds mu, and there is a hold.
func (g *Guard) join(losses []loss, explained bool, puts []*resource.Resource, before memstore.Snapshot, now time.Time) []loss {
	h := g.hold
	h.passed.forget(now.Add(-g.settings.Window))
	growing := slices.DeleteFunc(slices.Clone(losses), func(l loss) bool { objects, lost := h.notYetHeld(l); return objects+lost == 0 })
	if !explained && len(growing) == 0 || explained && now.Sub(h.grew) < g.settings.Window {
		return losses
	}
	c := g.check(nil, puts, before)
	for _, l := range growing {
		objects, lost := h.notYetHeld(l)
		c.losing.add(l.key.Kind, objects, lost)
	}
	c.lostRecently = h.passed.sum
	c.present = c.present.clone() // without held losses, which may be real
	for kind, n := range h.sum.kinds {
		c.present.add(kind, -n, 0)
	}
	c.present.endpoints -= h.sum.endpoints
	if !explained || g.settings.tooMuch(c) != "" {
		h.grew = now
		return losses
	}
	held := make([]loss, 0, len(losses))
	for _, l := range losses {
		had := before.Get(l.key)
		if known, there := h.get(l.key); there {
			if had = known.desired; had != nil {
				l.was = minusLost(l.was, had, l.desired)
			}
			if l.endpoints() > 0 {
				held = append(held, l) // the part that was held before
			}
		}
		if objects, lost := h.notYetHeld(l); objects+lost > 0 {
			h.passed.note(l.key, l.desired == nil, endpoints(had), endpoints(l.desired), now)
		}
	}
	return held
}

// notYetHeld counts the part of a loss that is not held yet.
func (h *hold) notYetHeld(l loss) (objects, lost int) {
	known, held := h.get(l.key)
	if !held {
		return l.objects(), l.endpoints()
	}
	return max(0, l.objects()-known.objects()), max(0, endpoints(known.desired)-endpoints(l.desired))
}

// minusLost returns was without the endpoints that had has and desired lacks; desired may be nil. If one cannot be decoded, it returns was.
func minusLost(was, had, desired *resource.Resource) *resource.Resource {
	spec, ok := entryOf(was)
	lacks, known := entryOf(had)
	if !ok || !known {
		return was
	}
	gone := make(map[string]bool, len(lacks.Endpoints))
	for _, e := range lacks.Endpoints {
		gone[identity(e)] = true
	}
	if desired != nil {
		stays, known := entryOf(desired)
		if !known {
			return was
		}
		for _, e := range stays.Endpoints {
			delete(gone, identity(e))
		}
	}
	left := proto.CloneOf(spec)
	left.Endpoints = slices.DeleteFunc(left.Endpoints, func(e *networking.WorkloadEntry) bool { return gone[identity(e)] })
	r, err := resource.New(was.Meta(), left)
	if err != nil {
		return was
	}
	return r.WithOrigin(was.Origin()).WithSeen(was.Seen())
}
