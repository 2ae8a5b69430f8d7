package fetch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/fetch"
)

// TestFollower has servers fail and answer again.
func TestFollower(t *testing.T) {
	follower := &fetch.Follower{Servers: []string{"a", "b", "c"}, Resync: time.Minute}
	start := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for _, step := range []struct {
		elapsed  time.Duration
		failing  string
		calls    string // in capitals: returning to a preferred server
		switched bool
		message  string
	}{
		{0, "", "a", false, ""},
		{time.Second, "ab", "abc", true, ""},
		{2 * time.Second, "ab", "c", false, ""},
		{time.Minute, "a", "AB", true, ""},
		{time.Minute + time.Second, "abc", "bca", false, "no server answers: b; c; a"},
		{2 * time.Minute, "b", "A", true, ""},
	} {
		calls := ""
		switched, err := follower.Read(start.Add(step.elapsed), func(server string, returning bool) error {
			call := server
			if returning {
				call = string(server[0] - 'a' + 'A')
			}
			calls += call
			for _, failing := range step.failing {
				if string(failing) == server {
					return errors.New(server)
				}
			}
			return nil
		})
		require.Equal(t, step.calls, calls)
		require.Equal(t, step.switched, switched)
		if step.message != "" {
			require.EqualError(t, err, step.message)
			continue
		}
		require.NoError(t, err)
	}
}
