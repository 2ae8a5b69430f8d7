package adsc

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/testutil"
)

// FuzzResource has an upstream send anything as a resource of Envoy's: it refers to others, or none.
func FuzzResource(f *testing.F) {
	f.Add(ClusterType, []byte("\x0a\x01a\x1a\x06\x1a\x01b"))
	f.Add(ListenerType, []byte("\x0a\xff\x01a"))
	f.Fuzz(func(t *testing.T, typeURL string, value []byte) {
		a := &anypb.Any{TypeUrl: typeURL, Value: value}
		testutil.Cost(t, len(value), 1000, func() {
			_ = References(a)
		})
	})
}
