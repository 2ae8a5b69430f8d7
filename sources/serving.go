package sources

import (
	"slices"
	"strings"

	"tributary/resource"
)

// Doubter is an optional interface of a Sink, for sources that can name the published objects that are unreadable.
type Doubter interface {
	// Unread replaces the unreadable inputs and their reasons: groups by name, and directories, for the groups below.
	Unread(why map[string]string)
}

// UnconfirmedSink is an optional interface of a Sink, for sources that can name the groups that the system lists no
// longer, or in part, and that stay.
type UnconfirmedSink interface {
	// Unconfirmed replaces the groups and their reasons. The sink does not modify them.
	Unconfirmed(why map[string]string)
}

// ReportUnconfirmed passes the unconfirmed groups and their reasons to a sink that takes them.
func ReportUnconfirmed(sink Sink, reasons map[string]string) {
	if unconfirmed, ok := sink.(UnconfirmedSink); ok {
		unconfirmed.Unconfirmed(reasons)
	}
}

// Serving is the condition of a served object of a source.
type Serving struct {
	Source string
	Held   bool // the guard holds its loss
	// Unread is why its input cannot be read at present; empty if it can. The last read version is served.
	Unread string
	// Unconfirmed is why the object stays though the system lists its group no longer, or in part; empty if it does not.
	Unconfirmed string
	// Unsure are the first rejects that may be a version of the object, and keep it served though no group has it.
	Unsure   []Quarantined
	Warnings []string // the warnings of validation
}

// Unread implements Doubter.
func (s *sink) Unread(reasons map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = reasons
}

// Unconfirmed implements UnconfirmedSink.
func (s *sink) Unconfirmed(reasons map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unconfirmed = reasons
}

// Serving returns the condition of an object at each source where it is held, unreadable, uncertain, unconfirmed or has
// warnings, in the order of the sources.
func (s *Supervisor) Serving(key resource.Key) (servings []Serving) {
	for _, runner := range s.list() {
		serving := runner.sink.serving(key)
		if serving.Held || serving.Unread+serving.Unconfirmed != "" || len(serving.Unsure)+len(serving.Warnings) > 0 {
			serving.Source = runner.name
			servings = append(servings, serving)
		}
	}
	return servings
}

func (s *sink) serving(key resource.Key) (serving Serving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, serving.Held = s.ledger.guard.Held(key)
	candidate, exists := s.ledger.winners[key]
	switch {
	case !exists:
		return serving
	case s.stale():
		serving.Unread = s.health.Message
		if !s.synced {
			serving.Unread = strings.TrimSuffix("it has not been read since the restart: "+serving.Unread, ": ")
		}
	default:
		serving.Unread = s.unreadable(candidate.group.name)
	}
	serving.Unconfirmed = s.unconfirmed[candidate.group.name]
	serving.Unsure = s.ledger.whyKept(key)
	serving.Warnings = slices.Clone(candidate.group.warned[key])
	return serving
}

// stale reports whether served objects may be out of date: the source is unreadable, or was not read as a whole yet and
// objects of an earlier run are served. The caller holds mu.
func (s *sink) stale() bool {
	if s.synced {
		return s.health.State == Unreachable || s.health.State == Denied
	}
	return s.restored != nil
}

// unreadable returns why a group, or a directory above it, cannot be read at present. The caller holds mu.
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

// countUnread counts the objects of unreadable groups. The caller holds mu.
func (s *sink) countUnread() (n int) {
	switch {
	case s.stale():
		return len(s.ledger.winners)
	case len(s.unread) == 0:
		return 0
	}
	for name, g := range s.ledger.groups {
		if s.unreadable(name) != "" {
			n += len(g.resources) + len(g.lastGoodNamed)
		}
	}
	return n
}
