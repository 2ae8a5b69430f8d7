package registry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPorts_MissingProtocolsAreNotCounted: most instances of a service name no protocol.
func TestPorts_MissingProtocolsAreNotCounted(t *testing.T) {
	counted := newPorts(0)
	counted.add(80, 0, "HTTP")
	counted.add(80, 0, "")
	counted.add(80, 0, "")
	require.Equal(t, Port{80, "HTTP"}, counted.port(Port{}))
	require.Equal(t, Port{80, "TCP"}, newPorts(80).port(Port{Protocol: "TCP"}), "the previous one")
}
