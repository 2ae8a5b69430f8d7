package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestValidate_CompetingSidecarsHideNoReference: competing objects are errors, but they were read, so that references
// are checked beside them.
func TestValidate_CompetingSidecarsHideNoReference(t *testing.T) {
	file := t.TempDir() + "/mesh.yaml"
	write(t, file, `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: a, namespace: shop}
spec: {egress: [{hosts: ['*/*']}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: b, namespace: shop}
spec: {egress: [{hosts: ['*/*']}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: prod}
spec: {hosts: [reviews.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: prod}
spec: {hosts: [reviews.internal], http: [{route: [{destination: {host: reviews.internal, subset: v2}}]}]}
`)
	got := command(t, "validate", file)
	assert.Contains(t, got.stdout+got.stderr, "IST0111")
	assert.Contains(t, got.stdout+got.stderr, "IST0101")
}
