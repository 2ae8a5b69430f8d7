package guard

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// join returns the losses, or the parts of losses, that join the hold. There is a hold.
//
// The source saw Explained losses one by one while its registry was healthy. They start a hold like others. They join a
// hold only if another loss joined within the last window, or if they alone exceed the limits; otherwise ordinary
// removals would accumulate in the hold until its release.
func (g *Guard) join(m Moment, losses []loss, c Commit) []loss {
	active := g.hold
	active.notJoined.forget(m.Now.Add(-g.settings.Window))
	growing := slices.DeleteFunc(slices.Clone(losses),
		func(l loss) bool { objects, lost := active.notYetHeld(l); return objects+lost == 0 })
	if !c.Explained && len(growing) == 0 || c.Explained && m.Now.Sub(active.lastJoined) < g.settings.Window {
		return losses
	}
	numbers := g.measure(nil, c.Puts, m.Served)
	for _, l := range growing {
		objects, lost := active.notYetHeld(l)
		numbers.losing.add(l.key.Kind, objects, lost)
	}
	numbers.lostRecently = active.notJoined.sum
	numbers.present = numbers.present.clone() // as if the held losses were applied
	for kind, n := range active.sum.kinds {
		numbers.present.add(kind, -n, 0)
	}
	numbers.present.endpoints -= active.sum.endpoints
	if !c.Explained || g.settings.exceeded(numbers) != "" {
		active.lastJoined = m.Now
		return losses
	}
	held := make([]loss, 0, len(losses))
	for _, l := range losses {
		previous := m.Served.Get(l.key)
		if heldLoss, isHeld := active.get(l.key); isHeld {
			if previous = heldLoss.desired; previous != nil {
				l.original = minusLost(l.original, previous, l.desired)
			}
			if l.endpoints() > 0 {
				held = append(held, l) // the part that is held already
			}
		}
		if objects, lost := active.notYetHeld(l); objects+lost > 0 {
			active.notJoined.note(l.key, l.desired == nil, endpoints(previous), endpoints(l.desired), m.Now)
		}
	}
	return held
}

// notYetHeld counts the part of a loss that is not held yet.
func (h *hold) notYetHeld(l loss) (objects, lost int) {
	heldLoss, held := h.get(l.key)
	if !held {
		return l.objects(), l.endpoints()
	}
	return max(0, l.objects()-heldLoss.objects()), max(0, endpoints(heldLoss.desired)-endpoints(l.desired))
}

// minusLost returns original without the endpoints that previous has and desired lacks; desired may be nil. If an
// object cannot be decoded, it returns original.
func minusLost(original, previous, desired *resource.Resource) *resource.Resource {
	spec, ok := entryOf(original)
	lostEntry, isEntry := entryOf(previous)
	if !ok || !isEntry {
		return original
	}
	lost := make(map[string]bool, len(lostEntry.Endpoints))
	for _, e := range lostEntry.Endpoints {
		lost[identity(e)] = true
	}
	if desired != nil {
		desiredEntry, isEntry := entryOf(desired)
		if !isEntry {
			return original
		}
		for _, e := range desiredEntry.Endpoints {
			delete(lost, identity(e))
		}
	}
	remaining := proto.CloneOf(spec)
	remaining.Endpoints = slices.DeleteFunc(remaining.Endpoints,
		func(e *networking.WorkloadEntry) bool { return lost[identity(e)] })
	r, err := resource.New(original.Meta(), remaining)
	if err != nil {
		return original
	}
	return r.WithOrigin(original.Origin()).WithSeen(original.Seen())
}
