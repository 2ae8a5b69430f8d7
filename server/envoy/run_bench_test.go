package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/server/envoy/model"
)

// BenchmarkFirstTranslation translates 2,000 services of 10 endpoints, 200 of them with a VirtualService, for the first sidecar.
func BenchmarkFirstTranslation(b *testing.B) {
	var text strings.Builder
	for i := range 2000 {
		_, _ = fmt.Fprintf(&text, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: s%d, namespace: bench}\n"+
			"spec:\n  hosts: [s%d.mesh.internal]\n  resolution: STATIC\n  ports: [{number: 8080, name: http, protocol: HTTP}]\n  endpoints:\n", i, i)
		for e := range 10 {
			_, _ = fmt.Fprintf(&text, "  - {address: 10.%d.%d.%d, ports: {http: 8080}, labels: {version: v1}}\n", i/250, i%250, e)
		}
		text.WriteString("---\n")
		if i%10 == 0 {
			_, _ = fmt.Fprintf(&text, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: s%d, namespace: bench}\n"+
				"spec: {hosts: [s%d.mesh.internal], http: [{timeout: 5s, route: [{destination: {host: s%d.mesh.internal}}]}]}\n---\n", i, i, i)
		}
	}
	var table memstore.Table
	table.Apply(decoded(b, text.String()), nil)
	b.ReportAllocs()
	for b.Loop() {
		c := catalogOfTable(&table)
		require.NotZero(b, c.newScope(model.ProfileOf(nodes[0])).cost())
	}
}
