package envoy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whether the routes of a wildcard are those of services, and not its own, is decided by the services that a client sees.
func TestWildcardRoutes_KeptWithoutVisibleService(t *testing.T) {
	const routes = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: default}
spec: {hosts: ["*.internal"], http: [{directResponse: {status: 204}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: hidden, namespace: other}
spec: {hosts: [hidden.internal], exportTo: ["."], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: ` +
		`[{address: 10.0.0.1}]}
`
	c := catalogOf(t, routes)
	_, domains := knownTo(t, c, node("default", "", ""))
	require.Equal(t, []string{"*.internal:80", "allow_any"}, domains)
	_, domains = knownTo(t, c, node("other", "", ""))
	require.Equal(t, []string{"hidden.internal:80", "allow_any"}, domains)
}
