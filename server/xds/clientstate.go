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
func (w *subscriptionNames) add(name string, present *state) {
	if w.names == nil {
		w.names = make(map[string]struct{})
	}
	if e := present.get(name); e != nil {
		name = e.Name
	}
	w.names[name] = struct{}{}
	yieldEvery512(len(w.names))
}

// entriesIn yields the entries of a state that have one of the names.
func (w *subscriptionNames) entriesIn(current *state) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		visited := 0
		if current.len < len(w.names) {
			for entry := range current.entries() {
				if _, ok := w.names[entry.Name]; ok && !yield(entry) {
					return
				}
				visited++
				yieldEvery512(visited)
			}
			return
		}
		for name := range w.names {
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
func (w *subscriptionNames) includes(name string) bool {
	_, ok := w.names[name]
	return ok || w.wildcard
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
func (h *clientState) mustAnswer(name string) { put(&h.notHeld, name, false) }

// mustResend makes the next response have name, if it exists.
func (h *clientState) mustResend(name string) { put(&h.resend, name, struct{}{}) }

// forget drops a name that the client no longer wants.
func (h *clientState) forget(name string) {
	delete(h.notHeld, name)
	delete(h.resend, name)
}

// forgetAllBut drops all names but those that the client wants.
func (h *clientState) forgetAllBut(names map[string]struct{}) {
	unwanted := func(name string) bool { _, wanted := names[name]; return !wanted }
	maps.DeleteFunc(h.notHeld, func(name string, _ absenceSent) bool { return unwanted(name) })
	maps.DeleteFunc(h.resend, func(name string, _ struct{}) bool { return unwanted(name) })
}

// split separates the entries that the client has by name from the others.
func (h *clientState) split(w *subscriptionNames, entries []*Entry) (named, unnamed []*Entry) {
	for _, entry := range entries {
		_, notHeld := h.notHeld[entry.Name]
		if _, ok := w.names[entry.Name]; ok && !notHeld {
			named = append(named, entry)
		} else {
			unnamed = append(unnamed, entry)
		}
	}
	return named, unnamed
}

// fresh reports whether the client has no resources, as far as the server can tell: it does not resume.
func (h *clientState) fresh() bool {
	return h.state == initialState && h.brought == nil && h.version == "" && len(h.removed) == 0
}

// answersRequest says whether the next response answers a request, not only a change.
func (h *clientState) answersRequest() bool {
	for _, sent := range h.notHeld {
		if !sent {
			return true
		}
	}
	return h.mustRespond || h.mentionAll || h.brought != nil || len(h.resend) > 0
}

// keepOnly forgets all that the client has but names.
func (h *clientState) keepOnly(names map[string]struct{}) { h.state = h.state.only(names) }

// get returns the client's entry of name, if it wants it, or nil.
func (h *clientState) get(name string) *Entry {
	if _, notHeld := h.notHeld[name]; notHeld {
		return nil
	}
	return h.state.get(name)
}

// heldVersion returns the version that the client has of name, if it wants it.
func (h *clientState) heldVersion(name string) (version string, ok bool) {
	if e := h.get(name); e != nil {
		return e.Version, true
	}
	if _, notHeld := h.notHeld[name]; notHeld {
		return "", false
	}
	version, ok = h.removed[name]
	return version, ok
}

// matches reports whether the client has exactly the entries of a state.
func (h *clientState) matches(s *state) bool { return h.state == s && len(h.removed) == 0 }

func (h *clientState) isGone(name string) bool { _, ok := h.removed[name]; return ok }

// stillGone returns the entries of removed that a response to goal leaves with the client, if the response removes none
// of the names that keeps accepts.
func (h *clientState) stillGone(goal *state, keeps func(name string) bool) map[string]string {
	var removed map[string]string
	for name, version := range h.removed {
		if _, notHeld := h.notHeld[name]; notHeld || goal.get(name) != nil || !keeps(name) {
			continue
		}
		put(&removed, name, version)
	}
	return removed
}

// mandatory yields the entries of goal that must be sent whether or not they have changed, each name once.
func (h *clientState) mandatory(goal *state) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for name := range h.notHeld {
			if e := goal.get(name); e != nil && !yield(e) {
				return
			}
		}
		for name := range h.resend {
			if _, notHeld := h.notHeld[name]; notHeld {
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
func (h *clientState) mustSend(name string) bool {
	_, notHeld := h.notHeld[name]
	_, resend := h.resend[name]
	return notHeld || resend
}
