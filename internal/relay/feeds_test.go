package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestPrecedenceReachesTheView(t *testing.T) {
	f := &feed{config: config.Source{Name: "a", Precedence: 7}}
	require.Equal(t, 7, f.input().Precedence)
}
