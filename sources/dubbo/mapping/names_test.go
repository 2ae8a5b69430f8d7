package mapping

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/sources/dubbo/provider"
)

func TestAHashIsNotCutAway(t *testing.T) {
	m, err := New(Options{}, "", nil)
	require.NoError(t, err)
	testutil.HashIsNotCutAway(t, func(text, toHash string) (host, object string) {
		n := m.name(provider.ID{Interface: text, Group: "g"}, toHash)
		return n.Host, n.Object
	})
}
