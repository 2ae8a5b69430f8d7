package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// countingRegistry counts the reads of its mapping.
type countingRegistry struct {
	Registry
	reads   int
	failure error
}

func (r *countingRegistry) Mapped(context.Context) (map[string][]string, error) {
	r.reads++
	return map[string][]string{"app": {"a"}}, r.failure
}

// TestMappingCache_PausesGrow requests the mapping every ten seconds, as for an instance that does not answer.
func TestMappingCache_PausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &countingRegistry{}
		cache := NewMappingCache(client)
		reads := func(duration time.Duration) int {
			before := client.reads
			for end := time.Now().Add(duration); time.Now().Before(end); time.Sleep(10 * time.Second) {
				interfaces, err := cache.Interfaces(t.Context(), "app", client.reads == 0)
				require.NoError(t, err)
				require.Equal(t, []string{"a"}, interfaces)
			}
			return client.reads - before
		}
		require.LessOrEqual(t, reads(time.Hour), 9)
		require.LessOrEqual(t, reads(24*time.Hour), 25)
		before := client.reads
		interfaces, _ := cache.Interfaces(t.Context(), "new", true)
		require.Empty(t, interfaces, "a request for a new application does not read at once")
		time.Sleep(firstPause)
		_, _ = cache.Interfaces(t.Context(), "new", false)
		require.Equal(t, before+1, client.reads, "a new application shortens the pause")

		client.failure = errors.New("no")
		time.Sleep(2 * lastPause)
		interfaces, err := cache.Interfaces(t.Context(), "app", false)
		require.EqualError(t, err, "no")
		require.Equal(t, []string{"a"}, interfaces, "the earlier mapping stays")
	})
}
