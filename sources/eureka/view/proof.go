package view

import (
	"cmp"
	"maps"
	"slices"

	"tributary/sources/eureka/wire"
)

// Marks are when a server took its instances, by its own clock to the millisecond. A server that is started anew, or another one, has taken
// the same instances at other times.
type Marks map[string]int64

// MaxMarks is how many are enough to know a server by.
const MaxMarks = 64

// MarksOf returns those of one answer. Those of a view prove nothing: it can have been put together of answers of several servers that
// stand behind one address.
func MarksOf(a *wire.Answer) Marks {
	m := make(Marks, len(a.Instances))
	for _, i := range a.Instances {
		if i.Registered != 0 {
			m[i.String()] = i.Registered
		}
	}
	return m
}

// With returns those and others, which are newer.
func (m Marks) With(newer Marks) Marks {
	all := maps.Clone(m)
	maps.Copy(all, newer)
	return all
}

// In returns those of what a view lists.
func (m Marks) In(v View) Marks {
	listed := make(Marks, len(v.instances))
	for key := range v.instances {
		if at, there := m[key.String()]; there {
			listed[key.String()] = at
		}
	}
	return listed
}

// Oldest returns those of the instances that are there for longest, who are likely to stay.
func (m Marks) Oldest() Marks {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[a], m[b]), cmp.Compare(a, b)) })
	few := make(Marks, MaxMarks)
	for _, key := range keys[:min(len(keys), MaxMarks)] {
		few[key] = m[key]
	}
	return few
}

// Continues reports whether what has marks now is the memory that had those before: at least half of the instances that both know were
// taken at the same time. Between two servers that tell each other, that is so of few, by chance. It is not known, and not so, if they have
// none in common.
func (m Marks) Continues(now Marks) bool {
	common, same := 0, 0
	for key, at := range m {
		if other, there := now[key]; there {
			common++
			if other == at {
				same++
			}
		}
	}
	return same > 0 && 2*same >= common
}
