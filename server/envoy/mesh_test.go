package envoy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/server/envoy/index"
)

// A change has the cost of the hosts that it touches: a change of an endpoint touches only its host, even if routes of
// all hosts lead to that host; a change of a port touches no service if the routes are those of a gateway.
func TestEndpointChange_TouchesItsHost(t *testing.T) {
	const entry = `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%d, namespace: default}
spec: {hosts: [s%[1]d.internal], ports: [{number: %[2]d, name: http, protocol: HTTP}], resolution: STATIC, %[3]s}
`
	const selected = "workloadSelector: {labels: {app: one}}"
	const workload = `---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: w, namespace: default}
spec: {address: %s, labels: {app: one}}
`
	var text strings.Builder
	for i := range 5 {
		fmt.Fprintf(&text, entry, i, 80, map[bool]string{true: selected, false: "endpoints: [{address: 10.0.0.1}]"}[i == 4])
	}
	for name, gateways := range map[string]string{"sidecars": "mesh", "gateways": "front"} {
		t.Run(name, func(t *testing.T) {
			mesh := index.NewMesh()
			touched := func(text string) []string {
				for _, r := range decoded(t, text) {
					require.NoError(t, mesh.Set(r.Key(), r))
				}
				return slices.Sorted(maps.Keys(mesh.Touched()))
			}
			touched(text.String() + fmt.Sprintf(workload, "10.0.0.1") + fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: default}
spec: {hosts: ["*"], gateways: [%s], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: s1.internal}}]}, {route: `+
				`[{destination: {host: s4.internal}}]}]}
`, gateways))
			require.Equal(t, []string{"s1.internal"}, touched(fmt.Sprintf(entry, 1, 80, "endpoints: [{address: 10.0.0.2}]")))
			require.Equal(t, []string{"s4.internal"}, touched(fmt.Sprintf(workload, "10.0.0.2")))
			want := []string{"*", "s0.internal", "s1.internal", "s2.internal", "s3.internal", "s4.internal"}
			if name == "gateways" {
				want = []string{"*", "s1.internal"}
			}
			require.Equal(t, want, touched(fmt.Sprintf(entry, 1, 81, "endpoints: [{address: 10.0.0.2}]")))
		})
	}
}
