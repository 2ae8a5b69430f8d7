package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/resource"
)

// LeftOut is something that could be called at what a source reads, and that it does not publish: since somebody wants it not to be called,
// as with a weight of 0, or since it cannot be.
type LeftOut struct {
	Source string `json:"source"` // set by the sink
	Group  string `json:"group"`  // the same
	What   string `json:"what"`   // an address, with its port if it has one, as it was read
	Of     string `json:"of"`     // of which service, interface or application it is, by the name that this has there
	Why    string `json:"why"`
}

func (l LeftOut) String() string { return fmt.Sprintf("%s of %s (%s)", l.What, l.Of, l.Why) }

func (l LeftOut) compare(o LeftOut) int {
	return cmp.Or(cmp.Compare(l.Group, o.Group), cmp.Compare(l.Of, o.Of), cmp.Compare(l.What, o.What), cmp.Compare(l.Why, o.Why))
}

// concerns reports whether somebody who asks for a host, an address or a name means this.
func (l LeftOut) concerns(asked string) bool {
	same := func(name string) bool { return strings.EqualFold(name, asked) }
	parts := strings.FieldsFunc(l.Of, func(r rune) bool { return strings.ContainsRune(" /:,@", r) })
	if same(l.What) || same(l.Group) || same(l.Of) || slices.ContainsFunc(parts, same) || sameAddress(l.What, asked) {
		return true
	}
	// What cannot be read has its address in the reason.
	words := strings.FieldsFunc(l.Why, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF.:", r) })
	return slices.ContainsFunc(words, func(word string) bool { return sameAddress(word, asked) })
}

// sameAddress reports whether two texts are one address, in whatever way it is written, with or without ports.
func sameAddress(a, b string) bool {
	x, ok := resource.AddressIn(a)
	y, ok2 := resource.AddressIn(b)
	return ok && ok2 && x == y
}

// recordLeftOut notes what the groups of contents leave out. The caller holds mu.
func (s *sink) recordLeftOut(contents []admitted) {
	source := s.source.String()
	for _, c := range contents {
		s.leftOut -= len(s.left[c.Group])
		delete(s.left, c.Group)
		if len(c.LeftOut) == 0 {
			continue
		}
		all := slices.Clone(c.LeftOut)
		for i := range all {
			all[i].Source, all[i].Group = source, c.Group
		}
		slices.SortFunc(all, LeftOut.compare)
		all = slices.Compact(all)
		s.left[c.Group] = all
		s.leftOut += len(all)
	}
}

// forgetLeftOut is for when the source starts again: it says anew what it leaves out.
func (s *sink) forgetLeftOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.leftOut = map[string][]LeftOut{}, 0
}

// maxLeftOut is how many of what is left out a status names.
const maxLeftOut = 1000

// leftOutIf returns the first of what is left out and meets a condition, in order. The caller holds mu.
func (s *sink) leftOutIf(meets func(LeftOut) bool) (all []LeftOut) {
	for _, of := range s.left {
		for _, l := range of {
			if meets(l) {
				all = append(all, l)
			}
		}
	}
	slices.SortFunc(all, LeftOut.compare)
	return all[:min(len(all), maxLeftOut)]
}

// LeavingOut returns what sources leave out of the groups in which they have any of keys, and what of it has the name or address that is
// asked for, if there is one.
func (s *Supervisor) LeavingOut(asked string, keys ...resource.Key) (all []LeftOut) {
	for _, r := range s.list() {
		r.sink.mu.Lock()
		groups := map[string]bool{}
		for _, key := range keys {
			if w, has := r.sink.ledger.winners[key]; has {
				groups[w.group.name] = true
			}
		}
		all = append(all, r.sink.leftOutIf(func(l LeftOut) bool { return groups[l.Group] || asked != "" && l.concerns(asked) })...)
		r.sink.mu.Unlock()
	}
	return all
}
