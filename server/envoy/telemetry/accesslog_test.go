package telemetry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpressions has expressions that Envoy refuses. TestEnvoyAccepts shows all accepted functions to a real Envoy.
func TestExpressions(t *testing.T) {
	for text, wrong := range map[string]string{
		"response.code >= 400 && has(request.headers['x'])": "it is no expression", // as has wants a field
		"response.code >=":                "it is no expression",
		"'a'.reverse() == 'a'":            "Envoy does not know the function reverse",
		"string(1) == '1'":                "Envoy does not know the function string",
		"[1].exists(x, x == 1)":           "Envoy takes neither macros",
		"google.rpc.Status{code: 1} == 1": "Envoy takes neither macros",
		"size(1, 2) == 1":                 "Envoy does not know the function size",
	} {
		require.Contains(t, checkExpression(text), wrong, text)
	}
	require.Empty(t, checkExpression("response.code >= 400 && has(request.headers.x)"))
}
