package sources

import (
	"slices"
	"strings"

	"tributary/resource"
)

// Doubter is what a Sink is besides, for sources that can tell what of that which they published cannot be read at present.
type Doubter interface {
	// Unread says what cannot be read at present, and why: groups by name, and directories, for the groups below. It takes the
	// place of what was said before.
	Unread(why map[string]string)
}

// Serving is what there is to know of an object of a source that is served, or may be, besides that the source has it.
type Serving struct {
	Source string
	Held   bool // a loss of it is held
	// Unread is why what it is in cannot be read at present; empty if it can. What was read before is served.
	Unread string
	// Unsure are the first of what keeps it served though no group has it any longer, since it may be one of these.
	Unsure   []Quarantined
	Warnings []string // that validation gave of it
}

// Unread implements Doubter.
func (s *sink) Unread(why map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = why
}

// Serving returns what there is to know of key, by source, in the order in which they were added; of those that have nothing to
// say of it, nothing.
func (s *Supervisor) Serving(key resource.Key) (all []Serving) {
	for _, r := range s.list() {
		if one := r.sink.serving(key); one.Held || one.Unread != "" || len(one.Unsure)+len(one.Warnings) > 0 {
			one.Source = r.name()
			all = append(all, one)
		}
	}
	return all
}

func (s *sink) serving(key resource.Key) (one Serving) {
	_, _, one.Held = s.guard.Held(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	w, has := s.ledger.winners[key]
	switch {
	case !has:
		return one
	case s.stale():
		one.Unread = s.health.Message
		if !s.synced {
			one.Unread = strings.TrimSuffix("it has not been read since the restart: "+one.Unread, ": ")
		}
	default:
		one.Unread = s.unreadable(w.group.name)
	}
	one.Unsure = s.ledger.keeping(key)
	one.Warnings = slices.Clone(w.group.warned[key])
	return one
}

// stale says that what is served may be out of date: the source cannot be read any more, or has not been read as a whole yet, and
// what an earlier run read is served. The caller holds mu.
func (s *sink) stale() bool {
	if s.synced {
		return s.health.State == Unreachable || s.health.State == Denied
	}
	return s.restored != nil
}

// unreadable says why a group, or what it is in, cannot be read at present. The caller holds mu.
func (s *sink) unreadable(group string) string {
	for len(s.unread) > 0 {
		if why := s.unread[group]; why != "" {
			return why
		}
		i := strings.LastIndexByte(group, '/')
		if i < 0 {
			break
		}
		group = group[:i]
	}
	return ""
}

// countUnread counts the objects that are in what cannot be read at present. The caller holds mu.
func (s *sink) countUnread() (n int) {
	switch {
	case s.stale():
		return len(s.ledger.winners)
	case len(s.unread) == 0:
		return 0
	}
	for name, g := range s.ledger.groups {
		if s.unreadable(name) != "" {
			n += len(g.has) + len(g.keeps)
		}
	}
	return n
}
