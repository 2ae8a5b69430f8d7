package consul

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/consul/dial"
)

// answering is the catalog of something that answers like that.
func answering(t *testing.T, answer http.HandlerFunc) catalog {
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	source, err := New(Scheme+"://"+s.Listener.Addr().String(), Settings{})
	require.NoError(t, err)
	t.Cleanup(source.client.Close)
	return source.catalog
}

func TestLongErrorPage_ShortensMessage(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "maintenance"+strings.Repeat("x", 8<<20), http.StatusBadGateway)
	})
	_, err := c.services(t.Context(), local, query{})
	require.ErrorContains(t, err, "maintenance")
	require.Less(t, len(err.Error()), 5<<10)
	require.Equal(t, dial.Unreachable, dial.Classify(err).Kind)
}

// A null item is no proof of absence.
func TestNullInAList(t *testing.T) {
	for _, answer := range []string{
		"[null]", `[{"Node": null, "Service": {}}]`, `[{"Node": {}, "Service": null}]`,
		`[{"Node": {}, "Service": {}, "Checks": [null]}]`,
	} {
		catalog := answering(t, func(response http.ResponseWriter, _ *http.Request) {
			for header, value := range map[string]string{"X-Consul-Index": "5", "X-Consul-LastContact": "0", "X-Consul-KnownLeader": "true"} {
				response.Header().Set(header, value)
			}
			_, _ = response.Write([]byte(answer))
		})
		_, err := catalog.service(t.Context(), local, "web", query{level: confirmed})
		require.ErrorContains(t, err, "not Consul's", answer)
		require.Equal(t, dial.Garbled, dial.Classify(err).Kind)
		if answer == "[null]" {
			_, _, err = catalog.changeItems(t.Context(), local, "critical", query{})
			require.ErrorContains(t, err, "not Consul's")
			_, _, err = catalog.changeItems(t.Context(), local, nodesQuery, query{})
			require.ErrorContains(t, err, "not Consul's")
		}
	}
}
