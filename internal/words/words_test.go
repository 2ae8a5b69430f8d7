package words_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/words"
)

func TestPlain(t *testing.T) {
	require.Equal(t, "dial tcp 127.0.0.1:1: strange", words.Plain(`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: strange"`))
	require.Equal(t, "no", words.Plain("rpc error: code = PermissionDenied desc = no"))
	require.Equal(t, "nobody listens there", words.Connection("a:1", "dial tcp: connect: connection refused"))
	require.Equal(t, "there is no host a", words.Connection("a:1", "lookup a: no such host"))
	require.Empty(t, words.Connection("a:1", "strange"))
}
