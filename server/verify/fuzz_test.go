package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever something in the place of an istiod answers is an error, or objects that are named.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"kind": "ServiceEntry", "apiVersion": "networking.istio.io/v1", "metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}, "spec": {"hosts": ["a.b"]}}]`))
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
