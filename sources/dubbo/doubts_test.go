package dubbo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/mapping"
)

// TestDoubts has a slip of the pen, and protocols that are none.
func TestDoubts(t *testing.T) {
	require.Equal(t, []string{"servicePorts: unknown Dubbo protocol dubo; did you mean dubbo?"},
		Doubts(mapping.Options{ServicePorts: map[string]int{"dubo": 20001, "dubbo": 20002, "https": 443, "mine": 20003}}))
}
