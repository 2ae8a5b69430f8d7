package consul

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// FuzzRegistered has any answer of a Consul: Dubbo's registration is refused, or it is a provider or an instance.
func FuzzRegistered(f *testing.F) {
	f.Add("a.B", []byte(`{"Node": {"Address": "10.0.0.1"}, "Service": {"Port": 80, "Tags": ["protocol=tri", "path=/x", "=", `+
		`"dubbo.metadata.revision=1"], "Meta": {"url": "tri://10.0.0.1:80/a.B"}}, "Checks": [{"Type": "ttl", "Status": "critical"}]}`))
	f.Add("", []byte(`{"Node": {}, "Service": {"Port": -1}}`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		var serviceEntry api.ServiceEntry
		if json.Unmarshal(text, &serviceEntry) != nil || serviceEntry.Node == nil || serviceEntry.Service == nil {
			return
		}
		testutil.Cost(t, len(name)+len(text), 2000, func() {
			if p, ok, err := ParseRegistration(name, &serviceEntry).Provider(); ok && err == nil {
				require.NotEmpty(t, p.Host)
			}
			_, _, _ = Instance(name, &serviceEntry)
			_ = StateOf(&serviceEntry)
			_ = levelsOf(serviceEntry.Service.Tags)
			_ = placesOf(name, &serviceEntry)
		})
	})
}
