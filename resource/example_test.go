package resource_test

import (
	"fmt"

	"tributary/resource"
)

// A file is decoded and validated; its valid objects can be served although another one is broken.
func Example() {
	const text = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.mesh.internal]
  resolution: STATIC
  ports: [{number: 9080, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  host: [reviews.shop.mesh.internal]
  http: [{timeout: 5}]
`
	for _, document := range resource.Decode("rules/reviews.yaml", []byte(text), resource.Options{}) {
		if err := document.Errors.Err(); err != nil {
			fmt.Println(err)
			continue
		}
		if _, err := resource.Validate(document.Resource); err != nil {
			fmt.Println(err)
			continue
		}
		wire, err := resource.EncodeMCP(document.Resource)
		fmt.Println(document.Resource.Key(), "from", document.Resource.Origin(), len(wire) > 0, err)
	}
	// Output:
	// ServiceEntry shop/reviews from rules/reviews.yaml:2 true <nil>
	// rules/reviews.yaml:15:3: VirtualService shop/reviews: spec: unknown field "host"; did you mean "hosts"?
	// rules/reviews.yaml:16:20: VirtualService shop/reviews: spec.http[0].timeout: want a duration such as "1.5s", got the number 5
}
