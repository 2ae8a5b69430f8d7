package mapping

import (
	"fmt"
	"slices"
	"strings"
)

// warner collects warnings about what is at a place: one a reason, which names some of the instances that it is about.
type warner struct {
	place   string
	general []string
	about   map[string][]string // instances by reason
}

// named is how many instances a warning names.
const named = 3

func (w *warner) add(what string) { w.general = append(w.general, w.place+": "+what) }

func (w *warner) addInstance(i *instance, reason string) {
	if w.about == nil {
		w.about = map[string][]string{}
	}
	w.about[reason] = append(w.about[reason], i.String())
}

// list returns the warnings in order.
func (w *warner) list() []string {
	all := w.general
	for reason, who := range w.about {
		slices.Sort(who)
		who, more := slices.Compact(who), ""
		if len(who) > named {
			more = fmt.Sprintf(" and %d more", len(who)-named)
			who = who[:named]
		}
		all = append(all, valid(w.place+": "+reason+" ("+strings.Join(who, ", ")+more+")"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
