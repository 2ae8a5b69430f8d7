package envoy

import (
	"cmp"
	"slices"
	"time"

	"tributary/resource"
)

// seniority decides which of several objects or services that claim the same has it. As with istiod, what is exported to the client's
// namespace alone comes first, then what is exported to some that it is one of, then what is for all; of these the oldest.
type seniority struct {
	reach   int
	created time.Time
}

// seniorityOf returns that of an object to the clients of a namespace, to whom it is visible.
func seniorityOf(key resource.Key, created time.Time, exportTo []string, client string) seniority {
	s := seniority{reach: 1, created: created}
	switch {
	case len(exportTo) == 0, slices.Contains(exportTo, "*"):
		s.reach = 2
	case key.Namespace == client:
		s.reach = 0
	}
	return s
}

func (s seniority) compare(o seniority) int {
	return cmp.Or(cmp.Compare(s.reach, o.reach), s.created.Compare(o.created))
}

// olderName orders objects of one age.
func olderName(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
}
