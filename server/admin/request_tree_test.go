package admin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/aggregate/conflicts"
	"tributary/resource"
	"tributary/server/admin"
)

// pictureObjects are a service with subsets, its routes, a delegate and destinations that do not exist.
const pictureObjects = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop, annotations: {tributary/derived-from: "HTTPRoute/shop/reviews, Gateway/edge/public"}}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints:
  - {address: 10.0.0.1, labels: {version: v1}}
  - {address: 10.0.0.2, labels: {version: v2}}
  - {address: 10.0.0.3, labels: {version: v2}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews.shop.svc.cluster.local
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  http:
  - match: [{uri: {prefix: /v2}, headers: {x-user: {exact: me}}}, {uri: {exact: /next}}]
    route: [{destination: {host: reviews, subset: v2, port: {number: 80}}}]
  - match: [{uri: {prefix: /items}}]
    delegate: {name: items}
  - match: [{uri: {prefix: /old}}]
    redirect: {uri: /new}
  - route:
    - {destination: {host: reviews, subset: v1}, weight: 90}
    - {destination: {host: reviews, subset: v3}, weight: 10}
    - {destination: {host: gone.example}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  resolution: DNS
  ports: [{number: 443, name: tls, protocol: TLS}]
`

func pictureServer(t *testing.T) *admin.Server { return serverOf(t, pictureObjects, nil) }

// serverOf returns a server of objects, with problems of them.
func serverOf(t *testing.T, yaml string, problems func() admin.ObjectProblems) *admin.Server {
	t.Helper()
	var objects []*resource.Resource
	for _, document := range resource.Decode("a.yaml", []byte(yaml), resource.Options{}) {
		require.NotNil(t, document.Resource, document)
		objects = append(objects, document.Resource)
	}
	return newServer(&world{}, serving(t, "rules", objects...), func(o *admin.Options) { o.Problems = problems })
}

// pictureRoutes have faults, mirrors, weights that are no percentages, and destinations that requests do not reach.
const pictureRoutes = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.example]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1, labels: {version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: other}
spec:
  host: reviews.example
  exportTo: [.]
  subsets: [{name: v1, labels: {version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: rest, namespace: shop}
spec:
  host: "*.example"
  subsets: [{name: v2, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.example]
  http:
  - match: [{withoutHeaders: {x-user: {exact: me}}, ignoreUriCase: true}]
    route:
    - {destination: {host: reviews.example}, weight: 1}
    - {destination: {host: reviews.example, port: {number: 81}}, weight: 3}
  - match: [{scheme: {exact: https}}, {sourceNamespace: edge, sourceLabels: {b: c, a: b}}, {gateways: [mesh]}]
    fault: {abort: {httpStatus: 503, percentage: {value: 10}}, delay: {fixedDelay: 5s, percentage: {value: 0.5}}}
    route: [{destination: {host: reviews.example, subset: v1}}]
  - name: rest
    route: [{destination: {host: reviews.example}}]
    mirrors: [{destination: {host: gone.example}, percentage: {value: 20}}]
  - mirror: {host: reviews.example, port: {number: 80}}
    route: [{destination: {host: reviews.example}}]
  - route: [{destination: {host: ratings.example, subset: v2}}]
  tcp:
  - match: [{port: 3306, destinationSubnets: [10.0.0.0/8]}]
    route: [{destination: {host: reviews.example}}]
`

// TestRequestTree_FaultsMirrorsAndDeadEnds draws conditions, faults, copies and shares of requests, and no endpoints of a
// destination that requests do not reach.
func TestRequestTree_FaultsMirrorsAndDeadEnds(t *testing.T) {
	s := serverOf(t, pictureRoutes, func() admin.ObjectProblems {
		return admin.ObjectProblems{Unresolved: []admin.ObjectProblem{{
			Ref:     conflicts.Ref{Kind: resource.VirtualService, Namespace: "shop", Name: "reviews"},
			Message: "spec.http[1].route[0].destination.subset: no DestinationRule has subsets for clients in shop: add one",
		}}}
	})
	require.Equal(t, strings.TrimSpace(`
reviews.example
└─ VirtualService shop/reviews
   ├─ without header x-user
   │  ├─ 25 % to reviews.example
   │  │  └─ ServiceEntry shop/reviews: 1 endpoint: 10.0.0.1
   │  └─ 75 % to reviews.example:81
   │     └─ ServiceEntry shop/reviews: LEADS NOWHERE, it has no port 81
   ├─ scheme https or from a=b, from b=c, from namespace edge or at mesh; fault: abort 10 % with 503; fault: delay 0.5 % by 5s
   │  └─ reviews.example, subset v1: LEADS NOWHERE, no DestinationRule has subsets for clients in shop: add one
   ├─ all requests
   │  ├─ reviews.example
   │  │  └─ ServiceEntry shop/reviews: 1 endpoint: 10.0.0.1
   │  └─ mirror 20 % to gone.example: no ServiceEntry has the host
   ├─ all requests
   │  ├─ reviews.example
   │  │  └─ ServiceEntry shop/reviews: 1 endpoint: 10.0.0.1
   │  └─ mirror 100 % to reviews.example:80
   │     └─ ServiceEntry shop/reviews: 1 endpoint: 10.0.0.1
   ├─ all requests
   │  └─ ratings.example, subset v2: no ServiceEntry has the host
   └─ TCP to 10.0.0.0/8, port 3306
      └─ reviews.example
         └─ ServiceEntry shop/reviews: 1 endpoint: 10.0.0.1
`), strings.Join(s.RequestTree("reviews.example"), "\n"))
}

// TestRequestTree_RoutesAndEndpoints draws the way of a request, with the places where it ends.
func TestRequestTree_RoutesAndEndpoints(t *testing.T) {
	s := pictureServer(t)
	require.Equal(t, strings.TrimSpace(`
reviews.shop.svc.cluster.local
└─ VirtualService shop/reviews
   ├─ /v2*, header x-user or /next
   │  └─ reviews.shop.svc.cluster.local:80, subset v2
   │     └─ ServiceEntry shop/reviews: 2 endpoints of 3 with version=v2: 10.0.0.2, 10.0.0.3
   ├─ /items*
   │  └─ delegate shop/items: LEADS NOWHERE, there is no such VirtualService
   ├─ /old*
   │  └─ redirect to /new
   └─ all requests
      ├─ 90 % to reviews.shop.svc.cluster.local, subset v1
      │  └─ ServiceEntry shop/reviews: 1 endpoint of 3 with version=v1: 10.0.0.1
      ├─ 10 % to reviews.shop.svc.cluster.local, subset v3: LEADS NOWHERE, no DestinationRule has the subset
      └─ 0 % to gone.example: no ServiceEntry has the host
`), strings.Join(s.RequestTree("reviews.shop.svc.cluster.local"), "\n"))
	require.Equal(t, []string{"web.example", "└─ ServiceEntry shop/web: DNS resolves the host"}, s.RequestTree("web.example"))
	require.Nil(t, s.RequestTree("gone.example"))
}

// TestExplain_DerivedObjects explains objects by the names of the Gateway API.
func TestExplain_DerivedObjects(t *testing.T) {
	server := pictureServer(t)
	for query, want := range map[string]string{
		"kind=HTTPRoute&namespace=shop&name=reviews":  "1 object is derived from it",
		"kind=httproutes&namespace=shop&name=reviews": "1 object is derived from it",
		"kind=gateway&namespace=edge&name=public":     "1 object is derived from it",
		"kind=HTTPRoute&namespace=shop&name=other":    "no source with derive has HTTPRoute shop/other, or no Gateway takes it",
	} {
		explanation := page[admin.Explanation](t, server, "/debug/explain?"+query)
		require.Equal(t, want, explanation.Why, query)
		require.Equal(t, strings.HasPrefix(want, "1 "), len(explanation.Objects) == 1, query)
	}
}
