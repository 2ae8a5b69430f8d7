package index

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

type reviewed struct{ n int }

func (r *reviewed) Review() { r.n++ }

// Addresses without clients are dropped, with their served ports.
func TestServe_DropsAddressesWithoutClients(t *testing.T) {
	mesh := NewMesh()
	key := resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "web"}
	set := func(addresses ...string) {
		spec := &networking.ServiceEntry{
			Hosts: []string{"web.internal"}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		}
		for _, a := range addresses {
			spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: a})
		}
		r, err := resource.New(resource.Meta{Key: key}, spec)
		require.NoError(t, err)
		require.NoError(t, mesh.Set(key, r))
	}
	set("10.0.0.1", "10.0.0.2")
	p := model.Profile{Namespace: "shop", Captures: true}
	reviewer := &reviewed{}
	twice := []func(){mesh.Serve(&p, []string{"10.0.0.1"}, reviewer), mesh.Serve(&p, []string{"10.0.0.1"}, reviewer)}
	require.NotEmpty(t, p.Inbound)
	for _, leave := range twice {
		require.Len(t, mesh.serving.places, 1)
		set("10.0.0.1")
		require.Empty(t, mesh.Moved())
		set("10.0.0.2")
		require.Len(t, mesh.Moved(), 1)
		set("10.0.0.1")
		require.Len(t, mesh.Moved(), 1)
		leave()
		leave()
	}
	require.Empty(t, mesh.serving.places)
	set("10.0.0.2")
	require.Empty(t, mesh.Moved())
}
