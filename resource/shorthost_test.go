package resource

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

func TestShortHosts_Warned(t *testing.T) {
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
		`vs.yaml:1: VirtualService shop/reviews: hosts[0]: "reviews" has no domain: istiod will take it to be "reviews.shop"; write the ` +
			`host in full, or set domainSuffix`,
		`vs.yaml:1: VirtualService shop/reviews: http[0].route[0].destination.host: "reviews" has no domain: istiod will take it to be ` +
			`"reviews.shop"; write the host in full, or set domainSuffix`,
		`vs.yaml:1: VirtualService shop/reviews: http[0].mirror.host: "shadow" has no domain: istiod will take it to be "shadow.shop"; ` +
			`write the host in full, or set domainSuffix`,
		`vs.yaml:1: VirtualService shop/reviews: tcp[0].route[0].destination.host: "db" has no domain: istiod will take it to be "db.shop"; ` +
			`write the host in full, or set domainSuffix`,
	}, got)
}

// TestShortHosts_CompletedAsByIstiod shows which hosts are completed, and that all others stay.
func TestShortHosts_CompletedAsByIstiod(t *testing.T) {
	text := `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [details, "*", 10.0.0.1, "fe80::1", "*.example", full.example]
  http:
  - route: [{destination: {host: details}, weight: 1}, {destination: {host: full.example}, weight: 1}]
    mirror: {host: shadow}
    mirrors: [{destination: {host: shadow2}}]
  tcp:
  - route: [{destination: {host: db}}]
  tls:
  - match: [{sniHosts: [a.example]}]
    route: [{destination: {host: secure}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec: {host: details}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: b, namespace: shop, annotations: {internal.istio.io/route-semantics: gateway}}
spec: {hosts: [details], http: [{route: [{destination: {host: details}}]}]}
`
	plain := Decode("x.yaml", []byte(text), Options{})
	complete := Decode("x.yaml", []byte(text), Options{DomainSuffix: "cluster.local", Validate: true})
	require.Len(t, complete, 3)
	for i := range plain {
		require.Empty(t, complete[i].Errors)
		want, err := plain[i].Resource.Spec()
		require.NoError(t, err)
		message, err := complete[i].Resource.Spec()
		require.NoError(t, err)
		full := map[string]string{ // by istiod 1.27.9's model.ResolveShortnameToFQDN
			"details": "details.shop.svc.cluster.local", "shadow": "shadow.shop.svc.cluster.local", "shadow2": "shadow2.shop.svc.cluster.local",
			"db": "db.shop.svc.cluster.local", "secure": "secure.shop.svc.cluster.local",
		}
		if i < 2 {
			shortHosts(want, func(_ string, host *string) { *host = cmp.Or(full[*host], *host) })
		}
		require.True(t, proto.Equal(want, message), "%v\n%v", want, message)
	}
	require.Equal(t, "details.shop.svc.cluster.local", func() string {
		spec, _ := complete[1].Resource.Spec()
		return spec.(*networking.DestinationRule).Host
	}())
	_, err := Validate(complete[1].Resource)
	require.NoError(t, err)
	require.NoError(t, CheckDomain("cluster.local"))
	require.ErrorContains(t, CheckDomain(".cluster.local"), "want a domain")
}
