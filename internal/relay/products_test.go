package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

// The limit of the configuration decides which objects are invalid for their products.
func TestValidation_LimitsProducts(t *testing.T) {
	t.Parallel()
	docs := resource.Decode("a.yaml", []byte(`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: b},
spec: {hosts: [a.example.com, b.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}}`), resource.Options{})
	require.Len(t, docs, 1)
	require.Empty(t, docs[0].Errors)
	for most, want := range map[int64]string{0: "", -1: "", 1 << 20: "", 1 << 10: "limits.productBytes, which is 1024"} {
		if _, err := validation(most)(docs[0].Resource); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}
