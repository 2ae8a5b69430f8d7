package adsc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDefaultBackoff_ReturnsSoonAfterLongOutage shows the longest pause, however long the server was away.
func TestDefaultBackoff_ReturnsSoonAfterLongOutage(t *testing.T) {
	retry := defaultBackoff()
	for range 1000 {
		require.LessOrEqual(t, retry.NextBackOff(), 15*time.Second)
	}
}
