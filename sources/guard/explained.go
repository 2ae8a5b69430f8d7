package guard

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// ApplyExplained is Apply for a commit whose losses the source has seen happen one by one, with its registry healthy throughout. They begin
// a hold as any others do. They do not join one that has not grown for a window, as long as they are within the limits by themselves: else
// a hold would gather what goes in the daily course of things until somebody releases it.
func (g *Guard) ApplyExplained(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	return g.apply(puts, deletes, true)
}

// join returns those of losses that join the hold, and as what. The caller holds mu, and there is a hold.
func (g *Guard) join(losses []loss, explained bool, puts []*resource.Resource, before memstore.Snapshot, now time.Time) []loss {
	h := g.hold
	h.passed.forget(now.Add(-g.settings.Window))
	fresh := slices.DeleteFunc(slices.Clone(losses), func(l loss) bool { objects, lost := h.fresh(l); return objects+lost == 0 })
	if !explained && len(fresh) == 0 || explained && now.Sub(h.grew) < g.settings.Window {
		return losses
	}
	q := g.question(nil, puts, before)
	for _, l := range fresh {
		objects, lost := h.fresh(l)
		q.now.add(l.key.Kind, objects, lost)
	}
	q.past = h.passed.sum
	q.has = q.has.clone() // what is held may not be there
	for kind, n := range h.sum.kinds {
		q.has.add(kind, -n, 0)
	}
	q.has.endpoints -= h.sum.endpoints
	if !explained || g.settings.tooMuch(q) != "" {
		h.grew = now
		return losses
	}
	held := make([]loss, 0, len(losses))
	for _, l := range losses {
		had := before.Get(l.key)
		if known, there := h.get(l.key); there {
			if had = known.desired; had != nil {
				l.was = without(l.was, had, l.desired)
			}
			if l.endpoints() > 0 {
				held = append(held, l) // what of it was held before
			}
		}
		if objects, lost := h.fresh(l); objects+lost > 0 {
			h.passed.note(l.key, l.desired == nil, endpoints(had), endpoints(l.desired), now)
		}
	}
	return held
}

// fresh counts what of a loss is not held yet.
func (h *hold) fresh(l loss) (objects, lost int) {
	known, held := h.get(l.key)
	if !held {
		return l.objects(), l.endpoints()
	}
	return max(0, l.objects()-known.objects()), max(0, endpoints(known.desired)-endpoints(l.desired))
}

// without returns was without those endpoints that had has and desired, which may be nil, has not. It is was itself if that cannot be told.
func without(was, had, desired *resource.Resource) *resource.Resource {
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
