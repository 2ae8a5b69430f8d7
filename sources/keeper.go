package sources

import "bytes"

// Keeper is what a Sink is besides, for sources that have to know at their start what an earlier run knew, such as whether
// what their system says can be believed. What is kept outlives a reload and, with a state directory, the process.
type Keeper interface {
	// Kept returns what Keep was given last, by this run of the source or an earlier one; nil if there is nothing.
	Kept() []byte
	// Keep keeps a note for the next run. It does not block: the note is on disk a moment later, together with what the source
	// published until then, and not before that was read as a whole once.
	Keep(note []byte)
}

// Kept implements Keeper.
func (s *sink) Kept() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.note)
}

// Keep implements Keeper.
func (s *sink) Keep(note []byte) {
	note = bytes.Clone(note)
	s.mu.Lock()
	s.note = note
	s.mu.Unlock()
	if s.remember != nil {
		s.remember(note)
	}
}
