package adsc

import (
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/testutil"
)

// FuzzResource has an upstream send anything as a resource of Envoy's: it has a name, or none, and refers to others, or none.
func FuzzResource(f *testing.F) {
	f.Add(ClusterType, []byte("\x0a\x01a\x1a\x06\x1a\x01b"))
	f.Add(ListenerType, []byte("\x0a\xff\x01a"))
	f.Fuzz(func(t *testing.T, typeURL string, value []byte) {
		a := &anypb.Any{TypeUrl: typeURL, Value: value}
		testutil.Cost(t, len(value), 1000, func() {
			require.LessOrEqual(t, len(firstField(a)), len(value))
			_ = References(a)
		})
	})
}

// FuzzCache has anything in the place of a file of the cache: it cannot be read, or has no resource twice.
func FuzzCache(f *testing.F) {
	f.Add([]byte("{\"type_url\":\"t\",\"delta\":true}\n{\"name\":\"a\",\"version\":\"1\"}\n{\"name\":\"a\",\"removed\":true}\n"))
	f.Add([]byte("{}\n\n{"))
	c, err := openCache(f.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(f, err)
	f.Cleanup(c.close)
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(c.path("t"), text, 0o600))
		testutil.Cost(t, len(text), 1000, func() {
			if r, err := c.load("t"); err == nil && r != nil {
				require.Equal(t, "t", r.TypeURL)
			}
		})
	})
}
