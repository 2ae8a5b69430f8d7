package xds

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReject_TruncatedReason has an Envoy reject two listeners with a reason that is cut before the second name. Both get their
// fallbacks, also if a later version was sent meanwhile.
func TestReject_TruncatedReason(t *testing.T) {
	for _, v := range []struct{ delta, late bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		r := newRejecting(t, variant{delta: v.delta})
		r.coll.typ.Fallback = func(_, rejected *Entry, _ bool) (*Entry, string) {
			return &Entry{Name: rejected.Name, Version: "safe"}, "a safe one"
		}
		_, n := r.set(1, "1", "0.0.0.0_80", "0.0.0.0_81")
		r.answer(n, "")
		_, n = r.set(2, "2 with DENY", "0.0.0.0_80", "0.0.0.0_81")
		if v.late {
			r.sub.unanswered = n
			r.set(3, "3 with DENY", "0.0.0.0_80", "0.0.0.0_81")
		}
		complete := "Error adding/updating listener(s) 0.0.0.0_80: script load error: " + strings.Repeat("x", 5000) +
			"\n0.0.0.0_81: script load error: " + strings.Repeat("x", 5000) + "\n"
		r.answer(n, complete[:4096]+"...(truncated)")
		for _, name := range []string{"0.0.0.0_80", "0.0.0.0_81"} {
			require.Equal(t, "safe", r.sub.shown().get(name).Version, "%+v: %s", v, name)
		}
	}
}
