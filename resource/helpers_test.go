package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
)

// A panic is one of the caller, who can recover, also while a long text is decoded on several processors.
func TestAPanicIsTheCallers(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x%d}\nspec: {hosts: [a.example]}\n", i)
	}
	message := schemaByKind[ServiceEntry].Message
	schemaByKind[ServiceEntry].Message = "not.linked.In" // NewSpec panics
	defer func() { schemaByKind[ServiceEntry].Message = message }()
	require.Panics(t, func() { Decode("a.yaml", []byte(text.String()), Options{}) })
}

// What Istio's validator would compare each with each is bounded before.
func TestHostsOfAVirtualServiceAreBounded(t *testing.T) {
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
