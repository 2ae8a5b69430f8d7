package e2e

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A connection that is open when a policy changes keeps the policies that it had. With --drain-strategy immediate,
// Envoy ends it with an answer as soon as the old listener drains, and the next request meets the new policy.
func TestOpenConnectionsKeepTheirPolicies(t *testing.T) {
	t.Parallel()
	for _, immediate := range []bool{false, true} {
		var flags []string
		if immediate {
			flags = []string{"--drain-strategy", "immediate"}
		}
		g := startGuarded(t, "", "", flags...)
		client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: 5 * time.Second}
		statusAgain := func() int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+fixture.Loopback(g.http)+"/", nil)
			require.NoError(t, err)
			res, err := client.Do(req)
			require.NoError(t, err)
			defer func() { _ = res.Body.Close() }()
			_, _ = io.Copy(io.Discard, res.Body)
			return res.StatusCode
		}
		g.expect(t, "at first", []wantedStatus{{probe{path: "/"}, 200}})
		require.Equal(t, http.StatusOK, statusAgain())
		write(t, g.dir, "policies.yaml", policy("deny", "{action: DENY, rules: [{}]}"))
		g.expect(t, "new connections", []wantedStatus{{probe{path: "/"}, 403}})
		require.Equal(t, http.StatusOK, statusAgain(), "the open connection")
		if immediate {
			require.Eventually(t, func() bool { return statusAgain() == http.StatusForbidden }, 5*time.Second,
				10*time.Millisecond, "the connection was ended")
		}
	}
}
