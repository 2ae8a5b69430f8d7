package mapping

import (
	"fmt"
	"slices"
	"strings"
)

// warner collects warnings: one a reason, which names some of the instances that it is about.
type warner struct {
	place   string // put before each
	general []string
	about   map[string][]string // by place and reason
}

// named is how many instances a warning names.
const named = 3

func (w *warner) add(what string) {
	if w.place != "" {
		what = w.place + ": " + what
	}
	w.general = append(w.general, what)
}

func (w *warner) addInstance(i *instance, reason string) {
	if w.about == nil {
		w.about = map[string][]string{}
	}
	if w.place != "" {
		reason = w.place + ": " + reason
	}
	w.about[reason] = append(w.about[reason], i.String())
}

// list returns the warnings in order.
func (w *warner) list() []string {
	all := slices.Clone(w.general)
	for reason, who := range w.about {
		slices.Sort(who)
		who = slices.Compact(who)
		more := ""
		if len(who) > named {
			more = fmt.Sprintf(" and %d more", len(who)-named)
			who = who[:named]
		}
		all = append(all, strings.ToValidUTF8(reason+" ("+strings.Join(who, ", ")+more+")", "?"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
