package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// BenchmarkServe measures the search for the ports of an address among 100,000 endpoints of 10,000 services.
func BenchmarkServe(b *testing.B) {
	mesh := NewMesh()
	for i := range 10_000 {
		spec := &networking.ServiceEntry{
			Hosts: []string{fmt.Sprintf("s%d.internal", i)}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		}
		for j := range 10 {
			spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{
				Address: fmt.Sprintf("10.%d.%d.%d", j, i/250, i%250), Labels: map[string]string{"version": "v1"},
			})
		}
		key := resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: fmt.Sprint("s", i)}
		r, err := resource.New(resource.Meta{Key: key}, spec)
		require.NoError(b, err)
		require.NoError(b, mesh.Set(key, r))
	}
	for b.Loop() {
		p := model.Profile{Namespace: "shop", Captures: true}
		mesh.Serve(&p, []string{"10.5.10.10"}, nil)()
		require.NotEmpty(b, p.Inbound)
	}
}
