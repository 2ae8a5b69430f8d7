package translate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/server/envoy/model"
)

func TestRegexProblem_DependsOnProgramSize(t *testing.T) {
	large := "/" + strings.Repeat("[0-9a-f]", 100)
	require.NotEmpty(t, model.RegexProblem(large, model.PlainProgram))
	require.Empty(t, model.RegexProblem(large, model.LargeProgram))
}
