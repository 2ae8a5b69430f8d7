package consul

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources/consul/mapping"
	"tributary/sources/sourcetest"
)

// Any answer of a server is refused, or its services can be served.
func FuzzInstances(f *testing.F) {
	f.Add("web", []byte(`[{"Node": {"Node": "n", "Address": "10.0.0.1"}, "Service": {"ID": "1", "Service": "web", "Port": 80, "Tags": `+
		`["a"], "Meta": {"a": "b"}}, "Checks": [{"Status": "critical"}]}]`))
	f.Add("a b", []byte(`[{"Node": {}, "Service": {"Port": -1, "Weights": {"Passing": 70000}, "TaggedAddresses": {"wan": {"Address": `+
		`"x", "Port": 99999}}}, "Checks": []}]`))
	f.Add("web", []byte(`[null]`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		var entries []*api.ServiceEntry
		if json.Unmarshal(text, &entries) != nil || checkEntries(entries) != nil {
			return
		}
		parsed := newInstances(entries)
		m, err := mapping.New(mapping.Options{}, sourcetest.VIPs{})
		require.NoError(t, err)
		m.Names([]string{name})
		content := m.Service(name, []mapping.Service{{Name: name, Datacenter: "dc1", Entries: parsed.list}})
		for _, r := range content.Resources {
			_, err := resource.Validate(r)
			require.NoError(t, err)
		}
		for _, r := range content.Rejects {
			require.Error(t, r.Err)
		}
	})
}
