package guard

import (
	"slices"

	"tributary/resource"
)

// join returns the losses, or the parts of losses, that join the hold. There is a hold.
//
// The source saw RemovalsObserved losses one by one while its registry was healthy. They start a hold like others. They
// join a hold only if another loss joined within the last window, or if they alone exceed the limits; otherwise
// ordinary removals would accumulate in the hold until its release.
func (g *Guard) join(moment Moment, losses []loss, commit Commit) []loss {
	active := g.hold
	active.notJoined.forget(moment.Now.Add(-g.settings.Window))
	if !commit.RemovalsObserved {
		grows := func(l loss) bool { objects, lost := active.notYetHeld(l); return objects+lost > 0 }
		if slices.ContainsFunc(losses, grows) {
			active.lastJoined = moment.Now
		}
		return losses
	}
	if moment.Now.Sub(active.lastJoined) < g.settings.Window {
		return losses
	}
	numbers := g.measure(losses, commit.Puts, moment.Served)
	numbers.lostRecently = active.notJoined.sum
	numbers.present = numbers.present.plus(active.sum, -1) // as if the held losses were applied
	if g.settings.exceeded(numbers) != "" {
		active.lastJoined = moment.Now
		return losses
	}
	held := make([]loss, 0, len(losses))
	for _, loss := range losses {
		previous := moment.Served.Get(loss.key)
		if heldLoss, isHeld := active.get(loss.key); isHeld {
			if previous = heldLoss.desired; previous != nil {
				loss.original = minusLost(loss.original, previous, loss.desired)
			}
			if loss.objects()+loss.endpoints() > 0 {
				held = append(held, loss) // the part that is held already
			}
		}
		if objects, lost := active.notYetHeld(loss); objects+lost > 0 {
			active.notJoined.note(loss.key, loss.desired == nil, endpoints(previous), endpoints(loss.desired), moment.Now)
		}
	}
	return held
}

// notYetHeld counts the part of a loss that is not held yet. Without a hold it is the whole.
func (h *hold) notYetHeld(loss loss) (objects, lost int) {
	heldLoss, held := h.get(loss.key)
	if !held {
		return loss.objects(), loss.endpoints()
	}
	return max(0, loss.objects()-heldLoss.objects()), max(0, endpoints(heldLoss.desired)-endpoints(loss.desired))
}

// minusLost returns original without the endpoints that previous has and desired lacks; desired may be nil. If an
// object cannot be decoded, it returns original.
func minusLost(original, previous, desired *resource.Resource) *resource.Resource {
	remaining, ok := entryOf(original)
	lostEntry, isEntry := entryOf(previous)
	if !ok || !isEntry {
		return original
	}
	lost := identities(lostEntry.Endpoints)
	if desired != nil {
		desiredEntry, isEntry := entryOf(desired)
		if !isEntry {
			return original
		}
		for id := range identities(desiredEntry.Endpoints) {
			delete(lost, id)
		}
	}
	remaining.Endpoints = dropIdentities(remaining.Endpoints, lost)
	object, err := resource.New(original.Meta(), remaining)
	if err != nil {
		return original
	}
	return object.WithOrigin(original.Origin()).WithSeen(original.Seen())
}
