package sources

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources/lastgood"
)

// Confirmer is an optional interface of a Sink, for sources that recognise an unchanged input without decoding it.
type Confirmer interface {
	// Confirm reports whether the group holds exactly the content that was published with this fingerprint, by any run of
	// the source, also in an earlier process, and that today's rules find valid. Then the source need not publish it.
	Confirm(group, fingerprint string) bool
}

// Confirm implements Confirmer.
func (s *sink) Confirm(group, fingerprint string) bool {
	s.mu.Lock()
	current := s.ledger.groups[group]
	if current == nil || current.print.Sum == noPrint.Sum {
		s.mu.Unlock()
		return false
	}
	resources, print, rules := current.resources, current.print, s.rules
	s.mu.Unlock()
	if sumOf(fingerprint, rules, resources, print.Notes) != print.Sum {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger.groups[group] != current || current.print != print || s.rules != rules { // another publish came between
		return false
	}
	if current.restored { // this program found it valid when it made the print
		s.ledger.confirm(current, s.source)
	}
	return true
}

// newPrint returns the print that confirms the content later. Content with rejects or repeated keys has none: such a
// group may hold other objects than its content.
func (a *admitted) newPrint(rules admissionRules) lastgood.Print {
	first, repeated := split(a.Resources)
	if a.Fingerprint == "" || len(repeated)+len(a.Rejects) > 0 {
		return lastgood.Print{}
	}
	notes := a.notes()
	return lastgood.Print{Sum: sumOf(a.Fingerprint, rules, first, notes), Notes: notes}
}

// sumOf identifies resources in order of their keys, with their notes and all that they depend on: the input, the
// settings of the source, and the program's rules of decoding and validation. It is zero if one of these is unknown.
func sumOf(fingerprint string, rules admissionRules, resources []*resource.Resource, notes string) (sum [16]byte) {
	program := resource.Rules()
	if fingerprint == "" || program == "" {
		return sum
	}
	hash := sha256.New()
	add := func(texts ...string) { hash.Write([]byte(names.Join(texts...))) }
	add(program, fingerprint, rules.transform.Identity(), strconv.FormatBool(rules.lenient), notes)
	for _, r := range resources {
		key, origin := r.Key(), r.Origin()
		add(string(key.Kind), key.Namespace, key.Name, r.Version(), origin.Place, origin.Rules)
	}
	return [16]byte(hash.Sum(nil))
}

// groupNotes are the remarks about the content of a group, stored with the print.
type groupNotes struct {
	Warnings []string   `json:"warnings,omitempty"`
	Warned   []warned   `json:"warned,omitempty"`
	Excluded []excluded `json:"excluded,omitempty"`
	Foreign  int        `json:"foreign,omitempty"`
	TextID   string     `json:"unclear,omitempty"` // see admitted.textID; then only Rejects is set, too
	// Rejects may restrict traffic. Envoys of the next process refuse requests from its start on.
	Rejects []storedReject `json:"rejects,omitempty"`
}

// storedReject is a Quarantined with a hidden field.
type storedReject struct {
	Quarantined

	MayRestrict bool `json:"mayRestrict,omitempty"`
}

// textID returns the identity of the text if it has rejects that may be any object, else "".
func (a *admitted) textID() string {
	if slices.ContainsFunc(a.Rejects, func(r Reject) bool { return !r.isIdentified() }) {
		return a.Text
	}
	return ""
}

// excluded is an object that the transforms exclude.
type excluded struct {
	Key   resource.Key `json:"key"`
	Place string       `json:"place"`
}

// warned has the warnings of validation about one resource.
type warned struct {
	Key      resource.Key `json:"key"`
	Warnings []string     `json:"warnings"`
}

// notes returns the encoded remarks about the content; most contents have none.
func (a *admitted) notes() string {
	if len(a.Warnings)+len(a.excluded)+a.Foreign == 0 {
		return ""
	}
	notes := groupNotes{Warnings: a.Warnings, Foreign: a.Foreign}
	for _, e := range a.excluded {
		notes.Excluded = append(notes.Excluded, excluded{e.Key, e.Place})
	}
	for _, r := range a.Resources {
		if ws := a.warned[r.Key()]; len(ws) > 0 {
			notes.Warned = append(notes.Warned, warned{r.Key(), ws})
		}
	}
	return encoded(notes)
}

func encoded(s groupNotes) string {
	text, err := json.Marshal(s)
	if err != nil {
		return "" // unreachable: texts and numbers can be encoded
	}
	return string(text)
}

// restoreRejects restores the rejects of a group from its print.
func (l *ledger) restoreRejects(group *group) {
	var notes groupNotes
	if group.print.Sum != noPrint.Sum || json.Unmarshal([]byte(group.print.Notes), &notes) != nil {
		return
	}
	group.ownRemarks().textID = notes.TextID
	for _, reject := range notes.Rejects {
		if reject.mayRestrict = reject.MayRestrict; reject.mayRestrict {
			group.neverValid++
		}
		group.quarantine = append(group.quarantine, reject.Quarantined)
	}
	l.quarantinedCount += len(group.quarantine)
	l.noteQuarantine(group)
}

// confirm restores the remarks of a group of source from its print, which still applies.
func (l *ledger) confirm(group *group, source string) {
	group.restored = false
	if group.print.Notes == "" {
		return
	}
	var notes groupNotes
	if err := json.Unmarshal([]byte(group.print.Notes), &notes); err != nil {
		return // unreachable: its sum is right
	}
	group.ownRemarks()
	l.warningCount += len(notes.Warnings) - len(group.warnings)
	l.foreignCount += notes.Foreign - group.foreign
	group.warnings, group.foreign, group.excluded = notes.Warnings, notes.Foreign, nil
	for _, e := range notes.Excluded {
		group.excluded = append(group.excluded, Excluded{Source: source, Key: e.Key, Place: e.Place})
	}
	group.warned = make(map[resource.Key][]string, len(notes.Warned))
	for _, w := range notes.Warned {
		group.warned[w.Key] = w.Warnings
	}
}

// Recaller is an optional interface of a Sink, for sources that can ask their system for differences only.
type Recaller interface {
	// Published returns the served resources of a group, published by any run of the source, also in an earlier process
	// or by other settings. They must not be modified.
	Published(group string) []*resource.Resource
	// Exact reports whether Published returns all that the source published by its present settings, without transforms
	// and quarantined objects.
	Exact(group string) bool
}

// Published implements Recaller.
func (s *sink) Published(group string) []*resource.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.ledger.groups[group]
	if current == nil {
		return nil
	}
	published := slices.Clip(current.resources)
	for key := range current.lastGoodNamed {
		published = append(published, s.ledger.winners[key].resource)
	}
	return published
}

// Exact implements Recaller.
func (s *sink) Exact(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ledger.groups[group]
	return s.rules.transform == nil && g != nil && !g.outdated && len(g.quarantine) == 0
}

// Keeper is an optional interface of a Sink, for sources that need the knowledge of an earlier run at their start, such
// as whether the answers of their system can be trusted. Its note outlives a reload and, with a state directory, the
// process.
type Keeper interface {
	// LastNote returns the last note of this or an earlier run; nil without one.
	LastNote() []byte
	// Keep stores a note for the next run. It does not block: a moment later, the note is on disk together with the
	// objects that the source published until then, but not before the source was read as a whole once.
	Keep(note []byte)
}

// LastNote implements Keeper.
func (s *sink) LastNote() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.note)
}

// Keep implements Keeper.
func (s *sink) Keep(note []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.note = bytes.Clone(note); s.lastGood != nil {
		s.lastGood.SetNote(s.note)
	}
}
