package sources

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"

	"tributary/resource"
	"tributary/sources/lastgood"
)

// Confirmer is what a Sink is besides, for sources that can tell that an input is what it was without making sense of it.
type Confirmer interface {
	// Confirm reports whether the group of that name holds exactly what was published with this mark, by this run of the
	// source or an earlier one, also of an earlier process, and would be found as good today. Then the source need not
	// publish it.
	Confirm(group, mark string) bool
}

// Confirm implements Confirmer.
func (s *sink) Confirm(group, mark string) bool {
	s.mu.Lock()
	g := s.ledger.groups[group]
	if g == nil || g.print.Sum == noPrint.Sum {
		s.mu.Unlock()
		return false
	}
	has, print, j := g.has, g.print, s.judge
	s.mu.Unlock()
	if sumOf(mark, j, has, print.Notes) != print.Sum {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger.groups[group] != g || g.print != print || s.judge != j { // somebody published meanwhile
		return false
	}
	if g.restored { // the print says that this program found it valid
		s.ledger.confirm(g, s.source.String())
	}
	return true
}

// fingerprint returns what content is known by later. It is none if the content cannot be confirmed: a group with rejects
// may hold what the content does not say, and what is there more than once is not kept.
func (a *admitted) fingerprint(j judge) lastgood.Print {
	first, repeated := split(a.Resources)
	if text := a.unclear(); text != "" { // nothing to confirm, but to be known again
		return lastgood.Print{Notes: encoded(groupNotes{Unclear: text})}
	}
	if a.Mark == "" || len(repeated)+len(a.Rejects) > 0 {
		return lastgood.Print{}
	}
	notes := a.notes()
	return lastgood.Print{Sum: sumOf(a.Mark, j, first, notes), Notes: notes}
}

// sumOf identifies resources, which are in order of their keys, and what else is known of them, and what made them so: what
// they were read from, the settings of the source, and the rules by which this program reads and judges. It is zero if that cannot be
// told.
func sumOf(mark string, j judge, rs []*resource.Resource, notes string) (sum [16]byte) {
	program := resource.Rules()
	if mark == "" || program == "" {
		return sum
	}
	h := sha256.New()
	buf := make([]byte, 0, 512)
	add := func(texts ...string) {
		buf = buf[:0]
		for _, t := range texts {
			buf = append(binary.AppendUvarint(buf, uint64(len(t))), t...)
		}
		h.Write(buf)
	}
	add(program, mark, j.transform.Identity(), strconv.FormatBool(j.lenient), notes)
	for _, r := range rs {
		key, origin := r.Key(), r.Origin()
		add(string(key.Kind), key.Namespace, key.Name, r.Version(), origin.Place, origin.Rules)
	}
	copy(sum[:], h.Sum(buf[:0]))
	return sum
}

// groupNotes is what is known of the content of a group besides the resources, as it is kept with the print.
type groupNotes struct {
	Warnings []string   `json:"warnings,omitempty"`
	Warned   []warned   `json:"warned,omitempty"`
	Excluded []excluded `json:"excluded,omitempty"`
	Foreign  int        `json:"foreign,omitempty"`
	Unclear  string     `json:"unclear,omitempty"` // see admitted.unclear; then there is only Rejects besides
	// Rejects cannot be enforced by Envoys, which refuse requests from the start of the next process on.
	Rejects []storedReject `json:"rejects,omitempty"`
}

// storedReject is a Quarantined with a hidden field.
type storedReject struct {
	Quarantined

	MayRestrict bool `json:"mayRestrict,omitempty"`
}

// unclear is what identifies the text if it cannot be told of all that is refused in it what it is; else it is empty.
func (a *admitted) unclear() string {
	if slices.ContainsFunc(a.Rejects, func(r Reject) bool { return !r.identified() }) {
		return a.Text
	}
	return ""
}

// excluded is an object that the transforms left out.
type excluded struct {
	Key   resource.Key `json:"key"`
	Place string       `json:"place"`
}

// warned are those of the warnings that validation gave about one resource.
type warned struct {
	Key      resource.Key `json:"key"`
	Warnings []string     `json:"warnings"`
}

// notes returns what there is to say besides the resources; nothing, mostly.
func (a *admitted) notes() string {
	if len(a.Warnings)+len(a.excluded)+a.Foreign == 0 {
		return ""
	}
	s := groupNotes{Warnings: a.Warnings, Foreign: a.Foreign}
	for _, e := range a.excluded {
		s.Excluded = append(s.Excluded, excluded{e.Key, e.Place})
	}
	for _, r := range a.Resources {
		if ws := a.warned[r.Key()]; len(ws) > 0 {
			s.Warned = append(s.Warned, warned{r.Key(), ws})
		}
	}
	return encoded(s)
}

func encoded(s groupNotes) string {
	text, err := json.Marshal(s)
	if err != nil {
		return "" // texts and numbers can be encoded
	}
	return string(text)
}

// remember restores the rejects of a group from its print.
func (l *ledger) remember(g *group) {
	var notes groupNotes
	if g.print.Sum != noPrint.Sum || json.Unmarshal([]byte(g.print.Notes), &notes) != nil {
		return
	}
	g.remark().unclear = notes.Unclear
	for _, reject := range notes.Rejects {
		if reject.mayRestrict = reject.MayRestrict; reject.mayRestrict {
			g.neverValid++
		}
		g.quarantine = append(g.quarantine, reject.Quarantined)
	}
	l.quarantined += len(g.quarantine)
}

// confirm makes a restored group of source what it was when its print was made.
func (l *ledger) confirm(g *group, source string) {
	g.restored = false
	if g.print.Notes == "" {
		return
	}
	var s groupNotes
	if err := json.Unmarshal([]byte(g.print.Notes), &s); err != nil {
		return // its sum says that it is what was written
	}
	g.remark()
	l.warnings += len(s.Warnings) - len(g.warnings)
	l.foreign += s.Foreign - g.foreign
	g.warnings, g.foreign, g.excluded = s.Warnings, s.Foreign, nil
	for _, e := range s.Excluded {
		g.excluded = append(g.excluded, Excluded{Source: source, Key: e.Key, Place: e.Place})
	}
	g.warned = make(map[resource.Key][]string, len(s.Warned))
	for _, w := range s.Warned {
		g.warned[w.Key] = w.Warnings
	}
}

// Recaller is what a Sink is besides, for sources that can ask their system for no more than what is different.
type Recaller interface {
	// Published returns what is served of the group of that name, published by this run of the source or an earlier one, also of an
	// earlier process, whatever its settings were. It must not be modified.
	Published(group string) []*resource.Resource
	// Exact reports whether Published returns what the source itself published by its present settings: no transform changed it, and nothing
	// of it is quarantined.
	Exact(group string) bool
}

// Published implements Recaller.
func (s *sink) Published(group string) []*resource.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ledger.groups[group]
	if g == nil {
		return nil
	}
	all := slices.Clip(g.has)
	for key := range g.keeps {
		all = append(all, s.ledger.winners[key].resource)
	}
	return all
}

// Exact implements Recaller.
func (s *sink) Exact(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ledger.groups[group]
	return s.judge.transform == nil && g != nil && !g.outdated && len(g.quarantine) == 0
}

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
