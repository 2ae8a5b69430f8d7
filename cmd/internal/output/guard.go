package output

import (
	"fmt"
	"io"
	"time"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
)

// Guard writes all that is held.
func Guard(w io.Writer, all []admin.Guarded, now time.Time) error {
	t := &text{now: now}
	if len(all) == 0 {
		t.line("nothing is held")
	}
	for i, h := range all {
		if i > 0 {
			t.line("")
		}
		t.line("%s", h.Source)
		t.section("held", words.Count(h.Objects, "object", "objects")+" and "+words.Count(h.Endpoints, "endpoint", "endpoints"))
		t.section("hold", h.ID)
		t.section("since", t.at(h.Since))
		if h.Until != nil {
			t.section("until", h.Until.UTC().Format(time.RFC3339))
		}
		t.section("why", oneLine(h.Why))
		var lost []string
		for _, l := range h.Held {
			key := resource.Key{Kind: l.Kind, Namespace: l.Namespace, Name: l.Name}
			if l.Gone {
				lost = append(lost, key.String())
			} else {
				lost = append(lost, fmt.Sprintf("%s: %s", key, words.Count(l.Endpoints, "endpoint", "endpoints")))
			}
		}
		if h.More > 0 {
			lost = append(lost, fmt.Sprintf("and %d more", h.More))
		}
		t.section("lost", lost...)
		t.section("to let it go", "tributary guard release "+h.Source+" --hold "+h.ID)
	}
	return t.writeTo(w)
}
