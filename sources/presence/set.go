package presence

import "slices"

// Set has the items of a source by name.
type Set[T any] map[string]Entry[T]

// Entry is an item of a set.
type Entry[T any] struct {
	Value T    // a fact about a listed item, such as its version
	Held  bool // it is in doubt: it stays until it is listed, or until a list after the suspicion lacks it
}

// Put notes a listed item.
func (s Set[T]) Put(name string, value T) { s[name] = Entry[T]{Value: value} }

// Hold puts items in doubt: the source lost data.
func (s Set[T]) Hold(names ...string) {
	for _, name := range names {
		s[name] = Entry[T]{Held: true}
	}
}

// Held returns the items in doubt, in order.
func (s Set[T]) Held() (names []string) {
	for name, entry := range s {
		if entry.Held {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Fold applies a complete list, and returns the items that are gone. Items in doubt stay while a suspicion holds.
func (s Set[T]) Fold(listed map[string]T, holds bool) (gone []string) {
	for name, entry := range s {
		_, isListed := listed[name]
		stays := holds && entry.Held
		if !isListed && !stays {
			gone = append(gone, name)
			delete(s, name)
		}
	}
	for name, value := range listed {
		s.Put(name, value)
	}
	return gone
}
