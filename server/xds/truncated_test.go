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
		rejecting := newRejecting(t, variant{delta: v.delta})
		rejecting.coll.typ.Fallback = func(_, rejected *Entry, _ bool) (*Entry, string) {
			return &Entry{Name: rejected.Name, Version: "safe"}, "a safe one"
		}
		_, n := rejecting.set(1, "1", "0.0.0.0_80", "0.0.0.0_81")
		rejecting.answer(n, "")
		_, n = rejecting.set(2, "2 with DENY", "0.0.0.0_80", "0.0.0.0_81")
		if v.late {
			rejecting.sub.unanswered = n
			rejecting.set(3, "3 with DENY", "0.0.0.0_80", "0.0.0.0_81")
		}
		complete := "Error adding/updating listener(s) 0.0.0.0_80: script load error: " + strings.Repeat("x", 5000) +
			"\n0.0.0.0_81: script load error: " + strings.Repeat("x", 5000) + "\n"
		rejecting.answer(n, complete[:4096]+"...(truncated)")
		for _, name := range []string{"0.0.0.0_80", "0.0.0.0_81"} {
			require.Equal(t, "safe", rejecting.sub.shown().get(name).Version, "%+v: %s", v, name)
		}
	}
}
