package sources

import (
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

// restoreTable fills the table of a source with its last published objects, which are served until the source has been
// read. With an error, the source begins without objects, as it does the first time.
func restoreTable(spec Spec) (lastGood *lastgood.State, err error) {
	if spec.Memory == nil || spec.Anew {
		return nil, nil
	}
	lastGood, err = loadLastGood(spec)
	if lastGood != nil {
		spec.Memory.SetNote(lastGood.Note)
		empty := spec.Table.Snapshot().Len() == 0
		if _, now := spec.Table.Apply(lastGood.Resources, nil); empty && spec.Former == nil {
			spec.Memory.Continue(lastGood, now.Revision())
		}
		spec.Table.MarkSynced()
	}
	return lastGood, err
}

// restore gives the groups the objects that the table has from an earlier run. So the source can withdraw groups that
// are gone, an unchanged object is no commit, and an object that became invalid has a last good version. Of keys that
// several groups had, only the winner is known.
func (l *ledger) restore(snapshot memstore.Snapshot, lastGood *lastgood.State) {
	byGroup := make(map[string][]*resource.Resource)
	for r := range snapshot.All() {
		if lastGood != nil {
			if l, held := lastGood.Held[r.Key()]; held {
				r = l.Desired
			}
		}
		if r == nil { // the guard holds its loss
			continue
		}
		name := r.Origin().Group
		byGroup[name] = append(byGroup[name], r)
	}
	contents := make([]admitted, 0, len(byGroup))
	for name, rs := range byGroup {
		contents = append(contents, admitted{Content: Content{Group: name, Resources: rs}})
	}
	l.replace(contents, time.Time{})
	if lastGood != nil {
		l.incomplete = lastGood.Incomplete()
		for name, print := range lastGood.Prints {
			if l.groups[name] == nil { // it had no resources
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

// resume begins with the state of an earlier run.
func (s *sink) resume(lastGood *lastgood.State) {
	held := make(map[resource.Key]guard.Loss, len(lastGood.Held))
	for key, l := range lastGood.Held {
		held[key] = guard.Loss(l)
	}
	if err := s.guard.Resume(lastGood.Guard, held); err != nil {
		s.log.Error("losses that were held before the restart cannot be restored", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = lastGood.Note
	s.updateInvalid()
	s.restored = &Restored{Objects: len(lastGood.Resources), Stored: lastGood.Stored}
}

// inherit takes over the state of a source that has ended, and that read the same by other settings. The next read
// replaces that state, except for unreadable, invalid and held objects.
func (s *sink) inherit(predecessor *sink) {
	predecessor.mu.Lock()
	inherited, name := predecessor.ledger, predecessor.source.String()
	note, unread := predecessor.note, predecessor.unreadPolicies
	predecessor.ledger = newLedger(predecessor.guard)
	predecessor.mu.Unlock()

	s.guard.Inherit(predecessor.guard)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger, inherited.losses = inherited, s.guard
	if now := s.source.String(); now != name {
		s.ledger.relabel(now)
		s.guard.Relabel(now)
	}
	s.ledger.markOutdated()
	s.note, s.unreadPolicies = note, unread
	s.updateInvalid()
	if s.saveNote != nil {
		s.saveNote(note)
	}
}

// markOutdated marks the restored state as made by other settings.
func (s *sink) markOutdated() {
	s.guard.Reread()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.markOutdated()
}

// loadLastGood loads the state with which the source begins.
func loadLastGood(spec Spec) (*lastgood.State, error) {
	if spec.Former == nil {
		return spec.Memory.Load()
	}
	spec.Former.Rename(spec.Name)
	return spec.Former.Load()
}
