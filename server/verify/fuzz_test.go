package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each answer in place of istiod gives an error or objects with kinds.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"kind": "ServiceEntry", "apiVersion": "networking.istio.io/v1", "metadata": {"name": "a", "namespace": "b", ` +
		`"resourceVersion": "1"}, "spec": {"hosts": ["a.b"]}}]`))
	f.Add([]byte(`[{"kind": "ServiceEntry", "metadata": {}}, {"kind": 5}]`))
	f.Fuzz(func(t *testing.T, page []byte) {
		stored, err := Parse(page)
		if err != nil {
			return
		}
		for _, entry := range stored {
			require.NotEmpty(t, entry.Key.Kind)
			require.True(t, entry.Object != nil || entry.Err != nil)
		}
	})
}

// Each answer in place of an Envoy gives an error or a comparison.
func FuzzParseDump(f *testing.F) {
	f.Add([]byte(`{"configs": [{"@type": "a.BootstrapConfigDump", "bootstrap": {"node": {"id": "a"}}}, {"dynamic_active_clusters": ` +
		`[{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}}]}]}`))
	f.Add([]byte(`{"configs": [{"dynamic_listeners": [{}, {"active_state": {}}, {"error_state": {"failed_configuration": 5}}], ` +
		`"dynamic_endpoint_configs": [{"endpoint_config": {}}]}]}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		dump, err := ParseDump(page)
		if err != nil {
			return
		}
		findings, _, err := CompareEnvoy(&Expected{Dump: page}, dump)
		require.NoError(t, err)
		for _, f := range findings {
			require.NotEmpty(t, f.Reason+f.Name+string(f.Kind))
		}
	})
}
