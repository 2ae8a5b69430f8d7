package envoy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/server/envoy/model"
)

// Envoy's regular expressions match bytes, not characters: Envoy refuses an escape of more than a byte, with all routes
// of the port.
func TestEscapesBeyondBytes(t *testing.T) {
	for _, re := range []string{`[\x{D800}-\x{DFFF}]|.*`, `\x{100}`, `\x{1F600}`, `a|\777`, `\Q\x{41}\E\x{E000}`, `\\\x{100}`} {
		require.NotEmpty(t, model.RegexProblem(re, model.LargeProgram), re)
	}
	for _, re := range []string{`\x{41}`, `\x{0FF}`, `[^\x{FF}]`, `\0777`, `\177`, `\xFF`, `[é-ö]|é`, `\Q\x{100}\E`, `\\x{100}`, `\pL`} {
		require.Empty(t, model.RegexProblem(re, model.LargeProgram), re)
	}
}
