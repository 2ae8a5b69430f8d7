package xds

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	require.Equal(t, "sidecar~10.0.0.1~a.b~c", printable("sidecar~10.0.0.1~a.b~c", ""))
	require.Equal(t, `x\x1b[2J\x0aok: é\x9b`, printable("x\x1b[2J\nok: é\u009b", ""))
	require.Equal(t, "one\n\ttwo\\x1b", printable("one\n\ttwo\x1b", "\n\t"))
}
