package admin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/aggregate"
	"tributary/memstore"
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

func pictureServer(t *testing.T) *admin.Server {
	t.Helper()
	table := &memstore.Table{}
	var objects []*resource.Resource
	for _, document := range resource.Decode("a.yaml", []byte(pictureObjects), resource.Options{}) {
		objects = append(objects, document.Resource)
	}
	table.Apply(objects, nil)
	table.MarkSynced()
	w := &world{}
	return admin.New(admin.Options{
		View: viewOf(t, aggregate.Source{Name: "rules", Reader: table}), Sources: w, Clients: w, Config: &w.config,
		Registry: admin.NewRegistry("v1.2.3"),
	})
}

// TestPicture draws the way of a request, with the places where it ends.
func TestPicture(t *testing.T) {
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
      │  └─ ServiceEntry shop/reviews: 3 endpoints: 10.0.0.1, 10.0.0.2, 10.0.0.3
      └─ 0 % to gone.example: no ServiceEntry has the host
`), strings.Join(s.Picture("reviews.shop.svc.cluster.local"), "\n"))
	require.Equal(t, []string{"web.example", "└─ ServiceEntry shop/web: DNS resolves the host"}, s.Picture("web.example"))
	require.Nil(t, s.Picture("gone.example"))
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
		_, body := get(t, server, "/debug/explain?"+query)
		var explanation admin.Explanation
		require.NoError(t, json.Unmarshal([]byte(body), &explanation), body)
		require.Equal(t, want, explanation.Why, query)
		require.Equal(t, strings.HasPrefix(want, "1 "), len(explanation.Objects) == 1, query)
	}
}
