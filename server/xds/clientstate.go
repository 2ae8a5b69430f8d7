package xds

import (
	"iter"
	"maps"
	"runtime"

	"tributary/server/xds/wire"
)

// put sets a value in a map. It makes a missing map: most maps of most streams stay empty.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// subscriptionNames are the names of a type that a client subscribed to.
type subscriptionNames struct {
	wildcard bool // a wildcard
	names    map[string]struct{}
}

// add adds a name. Clients that want the same names share the string of the entry in a state.
func (s *subscriptionNames) add(name string, present *state) {
	if s.names == nil {
		s.names = make(map[string]struct{})
	}
	if e := present.get(name); e != nil {
		name = e.Name
	}
	s.names[name] = struct{}{}
	yieldEvery512(len(s.names))
}

// entriesIn yields the entries of a state that have one of the names.
func (s *subscriptionNames) entriesIn(current *state) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		visited := 0
		if current.len < len(s.names) {
			for entry := range current.entries() {
				if _, ok := s.names[entry.Name]; ok && !yield(entry) {
					return
				}
				visited++
				yieldEvery512(visited)
			}
			return
		}
		for name := range s.names {
			if entry := current.get(name); entry != nil && !yield(entry) {
				return
			}
			visited++
			yieldEvery512(visited)
		}
	}
}

// yieldEvery512 yields the processor at every 512th name. Otherwise twenty streams with very many names delay each step
// of all others twentyfold, since each works until Go preempts it.
func yieldEvery512(names int) {
	if names%512 == 511 {
		runtime.Gosched()
	}
}

// includes says whether the client wants name.
func (s *subscriptionNames) includes(name string) bool {
	_, ok := s.names[name]
	return ok || s.wildcard
}

// clientState is the content that the client has: the subscribed part of state, without the names of notHeld, plus the
// removed resources. Before the first response, state is empty and brought has the versions that the client sent.
type clientState struct {
	state *state
	// removed has the versions, by name, of resources that the client still has from an earlier stream and that no longer
	// exist. A later response removes them. Their content is unknown; with SotW, so are their versions.
	removed     map[string]string
	brought     *wire.Versions         // delta: initial_resource_versions; nil if there are none
	version     string                 // SotW: version_info, of everything; empty if there is none
	notHeld     map[string]absenceSent // names that the client does not have
	resend      map[string]struct{}    // names to send again, if they exist: the client waits for them
	mentionAll  bool                   // delta: before the first response, which mentions each name that the client wants
	mustRespond bool                   // the next response is due even if it is empty
	resendAll   bool                   // delta: a wildcard is new; whatever it covers must be sent again
}

// absenceSent says whether a response that reports a name as missing was planned. If not, the next response must
// mention the name.
type absenceSent bool

// mustAnswer makes the next response mention name.
func (c *clientState) mustAnswer(name string) { put(&c.notHeld, name, false) }

// mustResend makes the next response have name, if it exists.
func (c *clientState) mustResend(name string) { put(&c.resend, name, struct{}{}) }

// forget drops a name that the client no longer wants.
func (c *clientState) forget(name string) {
	delete(c.notHeld, name)
	delete(c.resend, name)
}

// forgetAllBut drops all names but those that the client wants.
func (c *clientState) forgetAllBut(names map[string]struct{}) {
	unwanted := func(name string) bool { _, wanted := names[name]; return !wanted }
	maps.DeleteFunc(c.notHeld, func(name string, _ absenceSent) bool { return unwanted(name) })
	maps.DeleteFunc(c.resend, func(name string, _ struct{}) bool { return unwanted(name) })
}

// lacks reports whether the client does not have a resource, whatever it had.
func (c *clientState) lacks(name string) bool { _, isLacking := c.notHeld[name]; return isLacking }

// split separates the entries that the client has by name from the others.
func (c *clientState) split(w *subscriptionNames, entries []*Entry) (named, unnamed []*Entry) {
	for _, entry := range entries {
		if _, ok := w.names[entry.Name]; ok && !c.lacks(entry.Name) {
			named = append(named, entry)
		} else {
			unnamed = append(unnamed, entry)
		}
	}
	return named, unnamed
}

// fresh reports whether the client has no resources, as far as the server can tell: it does not resume.
func (c *clientState) fresh() bool {
	return c.state == initialState && c.brought == nil && c.version == "" && len(c.removed) == 0
}

// answersRequest says whether the next response answers a request, not only a change.
func (c *clientState) answersRequest() bool {
	for _, sent := range c.notHeld {
		if !sent {
			return true
		}
	}
	return c.mustRespond || c.mentionAll || c.brought != nil || len(c.resend) > 0
}

// forgetAllExcept forgets all that the client has but names.
func (c *clientState) forgetAllExcept(names map[string]struct{}) { c.state = c.state.only(names) }

// get returns the client's entry of name, if it wants it, or nil.
func (c *clientState) get(name string) *Entry {
	if c.lacks(name) {
		return nil
	}
	return c.state.get(name)
}

// heldVersion returns the version that the client has of name, if it wants it.
func (c *clientState) heldVersion(name string) (version string, ok bool) {
	if e := c.get(name); e != nil {
		return e.Version, true
	}
	if c.lacks(name) {
		return "", false
	}
	version, ok = c.removed[name]
	return version, ok
}

// matches reports whether the client has exactly the entries of a state.
func (c *clientState) matches(s *state) bool { return c.state == s && len(c.removed) == 0 }

func (c *clientState) isGone(name string) bool { _, ok := c.removed[name]; return ok }

// stillGone returns the entries of removed that a response to goal leaves with the client, if the response removes none
// of the names that keeps accepts.
func (c *clientState) stillGone(goal *state, keeps func(name string) bool) map[string]string {
	var removed map[string]string
	for name, version := range c.removed {
		if c.lacks(name) || goal.get(name) != nil || !keeps(name) {
			continue
		}
		put(&removed, name, version)
	}
	return removed
}

// mandatory yields the entries of goal that must be sent whether or not they have changed, each name once.
func (c *clientState) mandatory(goal *state) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for name := range c.notHeld {
			if e := goal.get(name); e != nil && !yield(e) {
				return
			}
		}
		for name := range c.resend {
			if c.lacks(name) {
				continue
			}
			if e := goal.get(name); e != nil && !yield(e) {
				return
			}
		}
	}
}

func hasNoEntries(entries iter.Seq[*Entry]) bool {
	for range entries {
		return false
	}
	return true
}

// mustSend reports whether mandatory yields the name.
func (c *clientState) mustSend(name string) bool {
	_, resend := c.resend[name]
	return resend || c.lacks(name)
}
