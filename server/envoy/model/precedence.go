package model

import (
	"cmp"
	"slices"
	"time"

	"tributary/resource"
)

// Precedence decides which of several objects or services that claim the same has it. As with istiod, what is exported to the client's
// namespace alone comes first, then what is exported to some that it is one of, then what is for all; of these the oldest.
type Precedence struct {
	Audience int
	rank     int // within the audience; see Rule.Precedence
	created  time.Time
}

// PrecedenceOf returns that of an object to the clients of a namespace, to whom it is visible.
func PrecedenceOf(key resource.Key, created time.Time, exportTo []string, client string) Precedence {
	s := Precedence{Audience: 1, created: created}
	switch {
	case len(exportTo) == 0, slices.Contains(exportTo, "*"):
		s.Audience = 2
	case key.Namespace == client:
		s.Audience = 0
	}
	return s
}

// Compare is negative if s comes first.
func (s Precedence) Compare(o Precedence) int {
	return cmp.Or(cmp.Compare(s.Audience, o.Audience), cmp.Compare(s.rank, o.rank), s.created.Compare(o.created))
}

// OlderName orders objects of one age.
func OlderName(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
}
