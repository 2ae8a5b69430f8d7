package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// Only objects over MCP may have names that Kubernetes refuses.
func TestLenientMetadata(t *testing.T) {
	t.Parallel()
	for _, settings := range []config.Settings{&config.XDS{}, &config.File{}, &config.Consul{}} {
		_, overMCP := settings.(*config.XDS)
		spec := (&activeSource{config: config.Source{Settings: settings}}).spec()
		require.Equal(t, overMCP, spec.LenientMetadata, "%T", settings)
	}
}
