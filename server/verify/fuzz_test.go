package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever something in the place of an istiod answers is an error, or objects that are named.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"kind": "ServiceEntry", "apiVersion": "networking.istio.io/v1", "metadata": {"name": "a", "namespace": "b", ` +
		`"resourceVersion": "1"}, "spec": {"hosts": ["a.b"]}}]`))
	f.Add([]byte(`[{"kind": "ServiceEntry", "metadata": {}}, {"kind": 5}]`))
	f.Fuzz(func(t *testing.T, page []byte) {
		stored, err := Parse(page)
		if err != nil {
			return
		}
		for _, s := range stored {
			require.NotEmpty(t, s.Key.Kind)
			require.True(t, s.Object != nil || s.Err != nil)
		}
	})
}

// Whatever something in the place of an Envoy answers is an error, or is compared.
func FuzzParseDump(f *testing.F) {
	f.Add([]byte(`{"configs": [{"@type": "a.BootstrapConfigDump", "bootstrap": {"node": {"id": "a"}}}, {"dynamic_active_clusters": ` +
		`[{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}}]}]}`))
	f.Add([]byte(`{"configs": [{"dynamic_listeners": [{}, {"active_state": {}}, {"error_state": {"failed_configuration": 5}}], ` +
		`"dynamic_endpoint_configs": [{"endpoint_config": {}}]}]}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		d, err := ParseDump(page)
		if err != nil {
			return
		}
		found, _, err := CompareEnvoy(&Expected{Dump: page}, d)
		require.NoError(t, err)
		for _, f := range found {
			require.NotEmpty(t, f.Reason+f.Name+string(f.Kind))
		}
	})
}
