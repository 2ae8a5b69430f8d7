package presence

import "slices"

// Set has the items of a source by name.
type Set[T any] map[string]Mark[T]

// Mark is the state of an item of a set.
type Mark[T any] struct {
	Value T    // of a listed item, such as its version
	Held  bool // it is in doubt: it stays until it is listed, or missing after the suspicion
}

// Put notes a listed item.
func (s Set[T]) Put(name string, value T) { s[name] = Mark[T]{Value: value} }

// Hold puts items in doubt: the source lost data.
func (s Set[T]) Hold(names ...string) {
	for _, name := range names {
		s[name] = Mark[T]{Held: true}
	}
}

// Held returns the items in doubt, in order.
func (s Set[T]) Held() (names []string) {
	for name, mark := range s {
		if mark.Held {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Fold takes a complete list, and returns the items that are gone. Items in doubt stay if a suspicion holds.
func (s Set[T]) Fold(listed map[string]T, holds bool) (gone []string) {
	for name, mark := range s {
		if _, isListed := listed[name]; !isListed && !(holds && mark.Held) {
			gone = append(gone, name)
			delete(s, name)
		}
	}
	for name, value := range listed {
		s.Put(name, value)
	}
	return gone
}
