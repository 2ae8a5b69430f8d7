package testutil

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// HashIsNotCutAway shows that a name is another one with something to hash, also if it is too long. name returns the
// host and the object of what registers as text.
func HashIsNotCutAway(t *testing.T, name func(text, toHash string) (host, object string)) {
	t.Helper()
	for _, text := range []string{
		"a", strings.Repeat("x", 100), "com." + strings.Repeat("x", 100), strings.Repeat("b23456789.", 30) + "c",
		".",
	} {
		hosts, objects := map[string]bool{}, map[string]bool{}
		for _, toHash := range []string{"", "1", "2"} {
			host, object := name(text, toHash)
			hosts[host], objects[object] = true, true
		}
		require.Len(t, hosts, 3, text)
		require.Len(t, objects, 3, text)
	}
}
