package dial

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCluster(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
		fails  bool
	}{
		"a cluster":                   {200, `{"TrustDomain":"4dc53b49.consul","Roots":[]}`, "4dc53b49.consul", false},
		"it has no mesh":              {500, "Connect must be enabled in order to use this endpoint", "", false},
		"it does not know it yet":     {500, "CA has not finished initializing", "", true},
		"it cannot be reached":        {502, "<html>Bad Gateway</html>", "", true},
		"a proxy does not let it":     {403, "no", "", false},
		"a proxy does not know it":    {404, "no", "", false},
		"a page":                      {200, "<html>", "", false},
		"no content":                  {200, "null", "", false},
		"a very old Consul":           {200, "{}", "", false},
		"the datacenter is not there": {500, "No path to datacenter", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/v1/connect/ca/roots", r.URL.Path)
				assert.True(t, r.URL.Query().Has("consistent"))
				response.Header().Set("X-Consul-Index", "9")
				response.Header().Set("X-Consul-LastContact", "0")
				response.Header().Set("X-Consul-KnownLeader", "true")
				response.WriteHeader(c.status)
				_, _ = io.WriteString(response, c.body)
			}))
			defer server.Close()
			client, err := New(Address{Host: server.Listener.Addr().String()}, Settings{})
			require.NoError(t, err)
			defer client.Close()
			got, err := client.Cluster(t.Context(), "")
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.want, got)
		})
	}
}
