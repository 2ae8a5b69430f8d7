package output_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/output"
	"tributary/resource"
)

func TestFields(t *testing.T) {
	read := func(text string) *resource.Resource {
		d := resource.Decode("x.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: DestinationRule\n"+text),
			resource.Options{})
		require.NoError(t, d[0].Errors.Err())
		return d[0].Resource
	}
	before := read("metadata: {name: a, namespace: b, labels: {x: v1}}\nspec: {host: h, subsets: [{name: v1}], " +
		"trafficPolicy: {loadBalancer: " +
		"{simple: RANDOM}}}\n")
	after := read("metadata: {name: a, namespace: b, labels: {x: v2}}\nspec: {host: h, subsets: [{name: v2}], " +
		"trafficPolicy: {loadBalancer: " +
		"{simple: ROUND_ROBIN}, tls: {mode: SIMPLE}}}\n")
	paths, err := output.ChangedFields(before, after)
	require.NoError(t, err)
	require.Equal(t, []string{
		"metadata.labels.x", "spec.subsets", "spec.trafficPolicy.loadBalancer.simple",
		"spec.trafficPolicy.tls",
	}, paths)
	paths, err = output.ChangedFields(after, after)
	require.NoError(t, err)
	require.Empty(t, paths)
}
