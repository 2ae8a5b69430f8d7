package envoy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/xds"
)

// BenchmarkAnEndpointChanges is one endpoint of a service that comes and goes while 1,000 clients with redirection are
// connected: replicas of one service, or each of another one; and, of 10,000 WorkloadEntries that services select, one
// that comes and goes.
func BenchmarkAnEndpointChanges(b *testing.B) {
	const services, each = 1000, 10
	object := func(kind resource.Kind, name string, labels map[string]string, spec any) *resource.Resource {
		meta := resource.Meta{Key: resource.Key{Kind: kind, Namespace: "shop", Name: name}, Labels: labels}
		var r *resource.Resource
		var err error
		switch spec := spec.(type) {
		case *networking.ServiceEntry:
			r, err = resource.New(meta, spec)
		case *networking.WorkloadEntry:
			r, err = resource.New(meta, spec)
		}
		require.NoError(b, err)
		return r
	}
	address := func(i, j int) string { return fmt.Sprintf("10.%d.%d.%d", j, i/250, i%250) }
	entry := func(i, endpoints int) *resource.Resource {
		spec := &networking.ServiceEntry{
			Hosts: []string{fmt.Sprintf("s%d.internal", i)}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		}
		for j := range endpoints {
			spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: address(i, j)})
		}
		return object(resource.ServiceEntry, fmt.Sprint("s", i), nil, spec)
	}
	client := func(b *testing.B, s *steps, address string) {
		n := &corev3.Node{Id: "sidecar~" + address + "~vm.shop~shop.svc.cluster.local", Metadata: node("shop", "REDIRECT", "").GetMetadata()}
		_, release, err := s.c.Collection(context.Background(), n, xds.EndpointURL)
		require.NoError(b, err)
		b.Cleanup(release)
	}
	for _, shape := range []string{"replicas", "different", "selected"} {
		b.Run(shape, func(b *testing.B) {
			var first []*resource.Resource
			if shape == "selected" {
				for i := range 100 {
					first = append(first, object(resource.ServiceEntry, fmt.Sprint("all", i), nil, &networking.ServiceEntry{
						Hosts: []string{fmt.Sprintf("all%d.internal", i)}, Resolution: networking.ServiceEntry_STATIC,
						Ports:            []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
						WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": fmt.Sprint(i / 10)}},
					}))
				}
				for i := range services * each {
					first = append(first, object(resource.WorkloadEntry, fmt.Sprint("w", i), map[string]string{"app": fmt.Sprint(i % 10)},
						&networking.WorkloadEntry{Address: address(i%services, i/services)}))
				}
			} else {
				for i := range services {
					first = append(first, entry(i, each))
				}
			}
			s := newSteps(Options{}, first...)
			for i := range 1000 {
				client(b, s, address(map[string]int{"replicas": 0, "different": i, "selected": i}[shape], 0))
			}
			for i := 0; b.Loop(); i++ {
				if shape == "selected" {
					s.apply([]*resource.Resource{object(resource.WorkloadEntry, "w7", map[string]string{"app": "7"},
						&networking.WorkloadEntry{Address: address(7, 0), Weight: uint32(1 + i%2)})}) //nolint:gosec // it is small
				} else {
					s.apply([]*resource.Resource{entry(7, each-i%2)})
				}
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
