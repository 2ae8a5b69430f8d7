package model

import (
	"cmp"
	"slices"
	"time"

	"tributary/resource"
)

// Precedence decides between objects or services with conflicting claims. As with istiod, those exported only to the
// client's namespace come first, then those exported to several namespaces with it, then those for all; of equal ones
// the oldest.
type Precedence struct {
	Audience int
	rank     int // within the audience; see Rule.Precedence
	created  time.Time
}

// PrecedenceOf returns the precedence of an object for the clients of a namespace that see it.
func PrecedenceOf(key resource.Key, created time.Time, exportTo []string, client string) Precedence {
	precedence := Precedence{Audience: 1, created: created}
	switch {
	case len(exportTo) == 0, slices.Contains(exportTo, "*"):
		precedence.Audience = 2
	case key.Namespace == client:
		precedence.Audience = 0
	}
	return precedence
}

// Compare is negative if the receiver comes first.
func (p Precedence) Compare(o Precedence) int {
	return cmp.Or(cmp.Compare(p.Audience, o.Audience), cmp.Compare(p.rank, o.rank), p.created.Compare(o.created))
}

// OlderName orders objects of one age.
func OlderName(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
}
