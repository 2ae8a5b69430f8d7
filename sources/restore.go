package sources

import (
	"time"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// Restored says what a source began with.
type Restored struct {
	Objects int       `json:"objects"`
	Stored  time.Time `json:"stored"` // when the last change before the restart was written
}

// restore fills the table of a source with what it published last, so that it is served until the source has been read.
// What cannot be read back is reported, and then the source begins with nothing, as it does the first time.
func restore(spec Spec) (kept *lastgood.State, err error) {
	if spec.Memory == nil || spec.Anew {
		return nil, nil
	}
	kept, err = loaded(spec)
	if kept != nil {
		spec.Memory.SetNote(kept.Note)
		empty := spec.Table.Snapshot().Len() == 0
		if _, now := spec.Table.Apply(kept.Resources, nil); empty && spec.Former == nil {
			spec.Memory.Continue(kept, now.Revision())
		}
		spec.Table.MarkSynced()
	}
	return kept, err
}

// restore makes the groups hold what the table has from an earlier run: so the source can withdraw what is gone, what is
// unchanged is no commit, and what has turned bad meanwhile has a last good version. Of keys that several groups had, only
// the winner is known.
func (l *ledger) restore(from memstore.Snapshot, kept *lastgood.State) {
	byGroup := make(map[string][]*resource.Resource)
	for r := range from.All() {
		if kept != nil {
			if l, held := kept.Held[r.Key()]; held {
				r = l.Desired
			}
		}
		if r == nil { // a loss of it is held, and the guard knows
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
	if kept != nil {
		l.incomplete = kept.Incomplete()
		for name, print := range kept.Prints {
			if l.groups[name] == nil { // it had no resources
				l.groups[name] = &group{name: name, remarks: noRemarks}
			}
			l.groups[name].print = &print
			l.remember(l.groups[name])
		}
	}
	for _, g := range l.groups {
		g.restored = true
	}
}

// resume notes that the source begins with what an earlier run left.
func (s *sink) resume(kept *lastgood.State) {
	held := make(map[resource.Key]guard.Loss, len(kept.Held))
	for key, l := range kept.Held {
		held[key] = guard.Loss(l)
	}
	if err := s.guard.Resume(kept.Guard, held); err != nil {
		s.log.Error("what was held before the restart is not known", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = kept.Note
	s.restored = &Restored{Objects: len(kept.Resources), Stored: kept.Stored}
}

// inherit makes the sink of a source that has not begun go on with what another one has, which has ended and was of the same source by
// other settings. What is read anew replaces that; what cannot be read, is not valid or is held stays.
func (s *sink) inherit(from *sink) {
	from.mu.Lock()
	had, note, name, unread := from.ledger, from.note, from.source.String(), from.unreadPolicies
	from.ledger = newLedger(from.guard)
	from.mu.Unlock()

	s.guard.Inherit(from.guard)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger, had.held = had, s.guard
	if now := s.source.String(); now != name {
		s.ledger.relabel(now)
		s.guard.Relabel(now)
	}
	s.ledger.outdate()
	s.note, s.unreadPolicies = note, unread
	if s.remember != nil {
		s.remember(note)
	}
}

// reread notes that what the source begins with was made by other settings, by an earlier run.
func (s *sink) reread() {
	s.guard.Reread()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.outdate()
}

// loaded returns what the source begins with, from where it is kept.
func loaded(spec Spec) (*lastgood.State, error) {
	if spec.Former == nil {
		return spec.Memory.Load()
	}
	spec.Former.Rename(spec.Name)
	return spec.Former.Load()
}
