package dubbo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/backend"
)

// TestHealth_BeginsWithoutFailure expects the state Starting before the first connection.
func TestHealth_BeginsWithoutFailure(t *testing.T) {
	r := &run{connection: backend.Connection{Message: notConnected}}
	require.Equal(t, sources.Health{State: sources.Starting, Message: "not connected yet"}, r.health(time.Now()))
	r.connection.Message = "connection refused"
	require.Equal(t, sources.Unreachable, r.health(time.Now()).State)
}
