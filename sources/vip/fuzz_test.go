package vip

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// FuzzParse has anything in the place of the file of addresses: it is refused, or no two hosts have one address.
func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "241.0.0.1 a.b\n241.0.0.2 c\n"))
	f.Add([]byte("10.0.0.1 a # not ours\n241.0.0.1 a\n241.0.0.1 b\n::1 c d"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := New(Default)
		require.NoError(t, err)
		testutil.Cost(t, len(text), 1000, func() { err = table.parse("x", text) })
		if err == nil {
			require.Len(t, table.byAddr, len(table.byHost))
		}
	})
}
