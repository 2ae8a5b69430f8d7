package resource

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Objects of other APIs are kept if their kind and group are named, with the types that kubectl gives to values; others
// are passed over.
func TestKeep(t *testing.T) {
	opts := Options{Keep: "Ingress.networking.k8s.io Service.", ForeignKinds: ForeignError}
	docs := Decode("a.yaml", []byte(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: a, creationTimestamp: 2020-01-01T00:00:00Z}
spec: {flag: yes, number: 80, s: "80", list: [&x {a: null}, *x]}
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: a}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: b}
spec: {a: 1, a: 2}
`), opts)
	require.Len(t, docs, 4)
	require.Empty(t, docs[0].Errors)
	require.Equal(t, "networking.k8s.io/v1", docs[0].Other.APIVersion)
	require.JSONEq(t, `{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a", "creationTimestamp":
		"2020-01-01T00:00:00Z"}, "spec": {"flag": true, "number": 80, "s": "80", "list": [{"a": null},
		{"a": null}]}}`, string(docs[0].Other.JSON))
	require.Equal(t, Key{"Ingress", "default", "a"}, docs[0].Key)
	require.Equal(t, "v1", docs[1].Other.APIVersion)
	require.Nil(t, docs[2].Other)
	require.Len(t, docs[2].Errors, 1, "it is of another group")
	require.Nil(t, docs[3].Other)
	require.ErrorContains(t, docs[3].Errors, "duplicate key")
	for _, d := range docs {
		require.True(t, d.Foreign)
		require.Nil(t, d.Resource)
	}
}
