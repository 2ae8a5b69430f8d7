package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
)

// A panic occurs in the caller's goroutine, where it can be recovered, also while several processors decode a long
// text.
func TestDecodePanic_ReachesCaller(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x%d}\nspec: {hosts: [a.example]}\n", i)
	}
	message := schemaByKind[ServiceEntry].Message
	schemaByKind[ServiceEntry].Message = "not.linked.In" // NewSpec panics
	defer func() { schemaByKind[ServiceEntry].Message = message }()
	require.Panics(t, func() { Decode("a.yaml", []byte(text.String()), Options{}) })
}

// Lists that Istio's validator compares pairwise are bounded first.
func TestVirtualServiceHosts_Bounded(t *testing.T) {
	spec := &networking.VirtualService{
		Http: []*networking.HTTPRoute{{Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "a.example"}}}}},
	}
	for i := range maxHosts + 1 {
		spec.Hosts = append(spec.Hosts, fmt.Sprintf("h%d.example", i))
	}
	r, err := New(Meta{Key: Key{Kind: VirtualService, Namespace: "shop", Name: "x"}}, spec)
	require.NoError(t, err)
	_, err = Validate(r)
	require.ErrorContains(t, err, "hosts: there are 10001, and at most 10000 are validated")
}
