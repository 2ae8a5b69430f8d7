package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/resource"
)

// LeftOut is an instance at a registry that a source does not serve: its owner disabled it, as with a weight of 0, or
// it is invalid.
type LeftOut struct {
	Source string `json:"source"` // set by the sink
	Group  string `json:"group"`  // set by the sink
	What   string `json:"what"`   // its address, with a port if it has one, as the registry has it
	Of     string `json:"of"`     // the registry's name of its service, interface or application
	Why    string `json:"why"`
}

func (l LeftOut) String() string { return fmt.Sprintf("%s of %s (%s)", l.What, l.Of, l.Why) }

func (l LeftOut) compare(o LeftOut) int {
	return cmp.Or(
		cmp.Compare(l.Group, o.Group), cmp.Compare(l.Of, o.Of), cmp.Compare(l.What, o.What), cmp.Compare(l.Why, o.Why))
}

// concerns reports whether a host, an address or a name means this instance.
func (l LeftOut) concerns(name string) bool {
	same := func(word string) bool { return strings.EqualFold(word, name) }
	parts := strings.FieldsFunc(l.Of, func(r rune) bool { return strings.ContainsRune(" /:,@", r) })
	if same(l.What) || same(l.Group) || same(l.Of) || slices.ContainsFunc(parts, same) || sameAddress(l.What, name) {
		return true
	}
	// Unreadable entries have their address in the reason.
	words := strings.FieldsFunc(l.Why, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF.:", r) })
	return slices.ContainsFunc(words, func(word string) bool { return sameAddress(word, name) })
}

// sameAddress reports whether two texts name the same address, in any notation, with or without ports.
func sameAddress(a, b string) bool {
	x, ok := resource.AddressIn(a)
	y, ok2 := resource.AddressIn(b)
	return ok && ok2 && x == y
}

// recordLeftOut replaces the left-out instances of groups. The caller holds mu.
func (s *sink) recordLeftOut(contents []admitted) {
	for _, content := range contents {
		s.leftOutCount -= len(s.leftOutByGroup[content.Group])
		delete(s.leftOutByGroup, content.Group)
		if len(content.LeftOut) == 0 {
			continue
		}
		sorted := slices.Clone(content.LeftOut)
		for i := range sorted {
			sorted[i].Source, sorted[i].Group = s.source, content.Group
		}
		slices.SortFunc(sorted, LeftOut.compare)
		sorted = slices.Compact(sorted)
		s.leftOutByGroup[content.Group] = sorted
		s.leftOutCount += len(sorted)
	}
}

// forgetLeftOut removes all left-out instances, since a source that starts lists them again.
func (s *sink) forgetLeftOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leftOutByGroup, s.leftOutCount = map[string][]LeftOut{}, 0
}

// maxLeftOut is the number of left-out instances that a status names.
const maxLeftOut = 1000

// leftOutIf returns the first left-out instances that meet a condition, in order. The caller holds mu.
func (s *sink) leftOutIf(meets func(LeftOut) bool) (selected []LeftOut) {
	for _, group := range s.leftOutByGroup {
		for _, l := range group {
			if meets(l) {
				selected = append(selected, l)
			}
		}
	}
	slices.SortFunc(selected, LeftOut.compare)
	return selected[:min(len(selected), maxLeftOut)]
}

// LeavingOut returns the left-out instances of the groups that have any of keys, and those with a name or address.
func (s *Supervisor) LeavingOut(name string, keys ...resource.Key) (leftOut []LeftOut) {
	for _, runner := range s.list() {
		runner.sink.mu.Lock()
		groups := map[string]bool{}
		for _, key := range keys {
			if w, exists := runner.sink.ledger.winners[key]; exists {
				groups[w.group.name] = true
			}
		}
		leftOut = append(leftOut, runner.sink.leftOutIf(func(l LeftOut) bool {
			return groups[l.Group] || name != "" && l.concerns(name)
		})...)
		runner.sink.mu.Unlock()
	}
	return leftOut
}
