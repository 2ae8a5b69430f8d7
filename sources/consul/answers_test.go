package consul

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/consul/consultest"
	"tributary/sources/consul/dial"
)

func TestLongErrorPage_ShortensMessage(t *testing.T) {
	server := consultest.New(t)
	server.Answer(http.StatusBadGateway, "maintenance"+strings.Repeat("x", 8<<20))
	_, err := dialed(t, server, Settings{}).services(t.Context(), local, query{})
	require.ErrorContains(t, err, "maintenance")
	require.Less(t, len(err.Error()), 5<<10)
	require.Equal(t, dial.Unreachable, dial.Classify(err).Kind)
}

// A null item is no proof of absence.
func TestNullInAList(t *testing.T) {
	server := consultest.New(t)
	catalog := dialed(t, server, Settings{})
	for _, answer := range []string{
		`[{"Node": null, "Service": {}}]`, `[{"Node": {}, "Service": null}]`, `[{"Node": {}, "Service": {}, "Checks": [null]}]`,
		"[null]",
	} {
		server.Answer(http.StatusOK, answer, "X-Consul-Index", "5", "X-Consul-LastContact", "0", "X-Consul-KnownLeader", "true")
		_, err := catalog.service(t.Context(), local, "web", query{level: confirmed})
		require.ErrorContains(t, err, "not Consul's", answer)
		require.Equal(t, dial.Garbled, dial.Classify(err).Kind)
	}
	for _, name := range []string{"critical", nodesQuery} {
		_, _, err := catalog.changeItems(t.Context(), local, name, query{})
		require.ErrorContains(t, err, "not Consul's")
	}
}
