package envoy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/xds"
)

// BenchmarkAnEndpointChanges is one endpoint of a service that comes and goes while 1,000 clients with redirection are
// connected: replicas of one service, or each of another one; and, of 10,000 WorkloadEntries that services select, one
// that comes and goes.
func BenchmarkAnEndpointChanges(b *testing.B) {
	const services, each = 1000, 10
	address := func(i, j int) string { return fmt.Sprintf("10.%d.%d.%d", j, i/250, i%250) }
	entry := func(i, endpoints int) string {
		var addresses []string
		for j := range endpoints {
			addresses = append(addresses, "{address: "+address(i, j)+"}")
		}
		return serviceAt(fmt.Sprint("s", i), 80, strings.Join(addresses, ", "))
	}
	workload := func(i, weight int) string {
		return fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w%d, namespace: shop}\n"+
			"spec: {address: %s, labels: {app: '%d'}, weight: %d}\n", i, address(i%services, i/services), i%10, weight)
	}
	client := func(b *testing.B, s *steps, address string) {
		n := &corev3.Node{Id: "sidecar~" + address + "~vm.shop~shop.svc.cluster.local", Metadata: node("shop", "REDIRECT", "").GetMetadata()}
		_, release, err := s.c.Collection(context.Background(), n, xds.EndpointURL)
		require.NoError(b, err)
		b.Cleanup(release)
	}
	for _, shape := range []string{"replicas", "different", "selected"} {
		b.Run(shape, func(b *testing.B) {
			var first strings.Builder
			for i := range services {
				if shape != "selected" {
					first.WriteString(entry(i, each))
				} else if i < 100 {
					first.WriteString(strings.Replace(serviceAt(fmt.Sprint("all", i), 80, ""), "endpoints: []",
						fmt.Sprintf("workloadSelector: {labels: {app: '%d'}}", i/10), 1))
				}
			}
			for i := range services * each {
				if shape == "selected" {
					first.WriteString(workload(i, 0))
				}
			}
			s := newSteps(Options{}, decoded(b, first.String())...)
			for i := range 1000 {
				client(b, s, address(map[string]int{"replicas": 0, "different": i, "selected": i}[shape], 0))
			}
			for i := 0; b.Loop(); i++ {
				text := entry(7, each-i%2)
				if shape == "selected" {
					text = workload(7, 1+i%2)
				}
				s.apply(decoded(b, text))
			}
			b.ReportMetric(float64(len(s.c.following)), "profiles")
		})
	}
}

// BenchmarkAPolicyChangesForManySets is a policy of 20 rules that changes, and an endpoint of a service that all
// clients serve, while there are 1,000 clients with different sets of eight services.
func BenchmarkAPolicyChangesForManySets(b *testing.B) {
	const services, clients, addressesPerClient = 1000, 1000, 8
	var text strings.Builder
	address := func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, i%250) }
	for i := range services {
		text.WriteString(serviceAt(fmt.Sprint("s", i), 80+i%50, "{address: "+address(i)+"}"))
	}
	s := newSteps(Options{}, decoded(b, text.String())...)
	for i := range clients {
		addresses := []string{address(0)}
		for j := range addressesPerClient - 1 {
			addresses = append(addresses, address(1+(i*7+j*i)%(services-1)))
		}
		n := withAddresses(strings.Join(addresses, ","), node("shop", "REDIRECT", ""))
		_, release, err := s.c.Collection(context.Background(), n, xds.ListenerURL)
		require.NoError(b, err)
		b.Cleanup(release)
	}
	b.Run("policy", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			s.apply(decoded(b, "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\n"+
				"spec:\n  action: DENY\n  rules:\n"+strings.Repeat(fmt.Sprintf("  - {to: [{operation: {paths: [/x/%d/*]}}]}\n", i), 20)))
		}
	})
	b.Run("endpoint", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			s.apply(decoded(b, serviceAt("s0", 80, fmt.Sprintf("{address: %s}, {address: 10.9.0.%d}", address(0), i%2))))
		}
	})
}
