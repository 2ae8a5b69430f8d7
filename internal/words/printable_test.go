package words

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	require.Equal(t, `a\u202eb\u2066\u200f\u2028\ufeff`, Printable("a\u202eb\u2066\u200f\u2028\ufeff", ""))
	require.Equal(t, "sidecar~10.0.0.1~a.b~c", Printable("sidecar~10.0.0.1~a.b~c", ""))
	require.Equal(t, `x\x1b[2J\x0aok: é\x9b`, Printable("x\x1b[2J\nok: é\u009b", ""))
	require.Equal(t, "one\n\ttwo\\x1b", Printable("one\n\ttwo\x1b", "\n\t"))
}
