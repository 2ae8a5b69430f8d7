package dial

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/consul/consultest"
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
			server := consultest.New(t)
			server.Answer(c.status, c.body, "X-Consul-Index", "9", "X-Consul-LastContact", "0", "X-Consul-KnownLeader", "true")
			client, err := New(Address{Host: server.Address()}, Settings{})
			require.NoError(t, err)
			defer client.Close()
			got, err := client.Cluster(t.Context(), "")
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.want, got)
			require.NotEmpty(t, server.Asked("/v1/connect/ca/roots?", "consistent="))
		})
	}
}
