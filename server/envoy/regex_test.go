package envoy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSomeClientsTakeLargerExpressions(t *testing.T) {
	large := "/" + strings.Repeat("[0-9a-f]", 100)
	require.NotEmpty(t, whyNot(large, plainProgram))
	require.Empty(t, whyNot(large, largeProgram))
}
