package envoy

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/coverage"
)

// Findings name an unsupported field at any position, with its replacement.
func TestWithout(t *testing.T) {
	virtualService := &networking.VirtualService{Http: []*networking.HTTPRoute{
		{},
		{
			Delegate: &networking.Delegate{Name: "x"},
			Headers:  &networking.Headers{Request: &networking.Headers_HeaderOperations{Set: map[string]string{"x-a": "50%", "x-b": "%REQ(x-c)%"}}},
		},
	}}
	require.Equal(t, []string{
		"spec.http[1].delegate has no effect on Envoys: a delegate does not delegate any further: the route is left out",
		"spec.http[1].headers.request.set[x-a] has no effect on Envoys: Envoy has no such command between the percent signs; " +
			"write a literal percent sign twice",
	}, coverage.WithoutEffect(virtualService))
	require.Empty(t, coverage.WithoutEffect(&networking.ServiceEntry{
		Hosts:     []string{"a.internal"},
		Endpoints: []*networking.WorkloadEntry{{Address: "10.0.0.1"}},
	}))
}
