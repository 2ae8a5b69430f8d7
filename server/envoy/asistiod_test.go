package envoy

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/envoy/model"
)

// Whatever lets an address with a zone through, Envoy is not sent it.
func TestZonedAddress_NotSent(t *testing.T) {
	const address = "fe80::1%eth0"
	for _, node := range nodes {
		for name, m := range dumpText(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], addresses: `+
			`["`+address+`"], ports: [{number: 80, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: `+
			`"`+address+`"}, {address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: b, namespace: default}
spec: {hosts: [b.example], ports: [{number: 81, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: "`+address+`"}]}
`, node) {
			require.NotContains(t, m.(interface{ String() string }).String(), address, name)
			if a, ok := m.(*endpointv3.ClusterLoadAssignment); ok && a.GetClusterName() == model.ClusterName(80, "", "a.example") {
				require.Len(t, a.GetEndpoints(), 1, name)
			}
		}
	}
}
