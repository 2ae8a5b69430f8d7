package sources

import (
	"slices"
	"time"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// Restored is the state of an earlier run with which a source began.
type Restored struct {
	Objects int       `json:"objects"`
	Stored  time.Time `json:"stored"` // when the last change before the restart was written
}

// restore fills the table with the stored objects, which are served until the source has been read. After an error the
// source begins without objects, as it does the first time.
func (r *runner) restore() *lastgood.State {
	lastGood, err := r.lastGood.Load()
	if err != nil {
		r.log.Error("the last published objects cannot be restored", "err", err)
	}
	if lastGood == nil {
		return nil
	}
	r.isReread = lastGood.Outdated
	isEmpty := r.table.Snapshot().Len() == 0
	if _, now := r.table.Apply(lastGood.Resources, nil); isEmpty && !lastGood.Outdated {
		r.lastGood.Continue(lastGood, now.Revision())
	}
	r.table.MarkSynced()
	r.log.Info("the last published objects are served until the source has been read",
		"objects", len(lastGood.Resources), "stored", lastGood.Stored)
	return lastGood
}

// restore gives the groups the objects that the table has from an earlier run. So the source can withdraw groups that
// disappeared, an unchanged object makes no commit, and an object that became invalid has a last good version. Of keys
// that several groups had, only the winner is known.
func (l *ledger) restore(snapshot memstore.Snapshot, lastGood *lastgood.State) {
	byGroup := make(map[string][]*resource.Resource)
	for object := range snapshot.All() {
		if lastGood != nil {
			if l, held := lastGood.Held[object.Key()]; held {
				object = l.Desired
			}
		}
		if object == nil { // the guard holds its loss
			continue
		}
		name := object.Origin().Group
		byGroup[name] = append(byGroup[name], object)
	}
	contents := make([]admitted, 0, len(byGroup))
	for name, rs := range byGroup {
		contents = append(contents, admitted{Content: Content{Group: name, Resources: rs}})
	}
	l.replace(contents, time.Time{})
	if lastGood != nil {
		l.incomplete = lastGood.Incomplete()
		for name, print := range lastGood.Prints {
			if l.groups[name] == nil { // the group had no resources
				l.groups[name] = &group{name: name, remarks: noRemarks}
			}
			l.groups[name].print = &print
			l.restoreRejects(l.groups[name])
		}
	}
	for _, g := range l.groups {
		g.restored = true
	}
}

// resume begins with the state of an earlier run. No other method has been called.
func (s *sink) resume(lastGood *lastgood.State) {
	s.act(func(g *guard.Guard, m guard.Moment) guard.Change {
		resumed, err := g.Resume(m, lastGood.Guard, lastGood.Held)
		if err != nil {
			s.log.Error("losses that were held before the restart cannot be restored", "err", err)
		}
		return resumed
	})
	if lastGood.Outdated {
		s.ledger.markOutdated()
		s.storeRejects()
	}
	s.note = lastGood.Note
	s.restored = &Restored{Objects: len(lastGood.Resources), Stored: lastGood.Stored}
}

// Inherit takes over the objects and the state of the same source by other settings, which has ended. The next read
// replaces these, except for unreadable, invalid and held objects.
func (s *sink) Inherit(from *sink) {
	from.mu.Lock()
	inherited, note, unread, served := from.ledger, from.note, from.unreadPolicies, from.table.Snapshot()
	absent := from.absentInvalid
	from.ledger = newLedger(guard.New(guard.Settings{}, memstore.Snapshot{}))
	from.mu.Unlock()

	s.Keep(note)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger, s.unreadPolicies = inherited, unread
	s.ledger.markOutdated()
	s.absentInvalid = absent
	s.storeRejects()
	s.updateInvalid()
	s.table.Apply(slices.Collect(served.All()), nil)
}
