package derive_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/derive"
)

// TestGatewaysWithLongNames: a Gateway has a name that is no DNS label, as it may, and routes of one hostname.
func TestGatewaysWithLongNames(t *testing.T) {
	for _, gateway := range []string{"gateway-with-two-attached-routes", "public.example.com"} {
		set := derive.NewSet(derive.Options{})
		put(t, set, v1, "Gateway", "edge/"+gateway, simple)
		route := "{parentRefs: [{name: " + gateway + "}], hostnames: [a.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}"
		put(t, set, v1, "HTTPRoute", "edge/first", route)
		put(t, set, v1, "HTTPRoute", "edge/second", route)
		require.Len(t, virtualService(t, set, "edge/").Http, 2)
	}
}
