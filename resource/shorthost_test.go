package resource

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
)

func TestShortHostsAreWarnedOf(t *testing.T) {
	to := func(host string) *networking.Destination { return &networking.Destination{Host: host} }
	r, err := New(Meta{Key: Key{VirtualService, "shop", "reviews"}, Origin: Origin{Place: "vs.yaml:1"}}, &networking.VirtualService{
		Hosts: []string{"reviews", "*.example.com", "reviews.shop.svc.cluster.local"},
		Http: []*networking.HTTPRoute{{
			Route:  []*networking.HTTPRouteDestination{{Destination: to("reviews"), Weight: 1}, {Destination: to("reviews.example.com"), Weight: 1}},
			Mirror: to("shadow"),
		}},
		Tcp: []*networking.TCPRoute{{Route: []*networking.RouteDestination{{Destination: to("db")}}}},
	})
	require.NoError(t, err)
	warnings, err := Validate(r)
	require.NoError(t, err)
	var got []string
	for _, w := range warnings {
		got = append(got, w.Error())
	}
	require.Equal(t, []string{
		`vs.yaml:1: VirtualService shop/reviews: hosts[0]: "reviews" has no domain: istiod will take it to be "reviews.shop"; write the host in full`,
		`vs.yaml:1: VirtualService shop/reviews: http[0].route[0].destination.host: "reviews" has no domain: istiod will take it to be "reviews.shop"; write the host in full`,
		`vs.yaml:1: VirtualService shop/reviews: http[0].mirror.host: "shadow" has no domain: istiod will take it to be "shadow.shop"; write the host in full`,
		`vs.yaml:1: VirtualService shop/reviews: tcp[0].route[0].destination.host: "db" has no domain: istiod will take it to be "db.shop"; write the host in full`,
	}, got)
}
