package derive_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources/derive"
)

// TestIngressGoldens compares the objects derived from the inputs of istiod's own test of Ingresses with istiod's.
func TestIngressGoldens(t *testing.T) {
	dir := filepath.Join(goldens(t), "../../ingress/testdata")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			set := derive.NewSet(derive.Options{DomainSuffix: "mydomain", IngressControllerMode: "DEFAULT"})
			for _, d := range readDocuments(t, file) {
				require.NoError(t, set.Put(d.APIVersion, d.Kind, resource.Origin{Place: file}, d.text))
			}
			require.True(t, compare(t, set, readDocuments(t, file+".golden"), nil))
		})
	}
}

func TestIngressOptions(t *testing.T) {
	require.NoError(t, derive.Options{IngressControllerMode: "OFF"}.Check())
	require.ErrorContains(t, derive.Options{IngressControllerMode: "strict"}.Check(), "ingressControllerMode: want STRICT")
}

// TestIngressWildcard holds that an asterisk stands for one label of a host, as Kubernetes has it.
func TestIngressWildcard(t *testing.T) {
	set := setOf(t, derive.Options{}, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i, namespace: shop},
		spec: {ingressClassName: istio, rules: [{host: "*.a.example", http: {paths: [{path: /, pathType: Prefix,
		backend: {service: {name: a, port: {number: 80}}}}]}}]}}`)
	match := virtualService(t, set, "shop/").GetHttp()[0].GetMatch()[0]
	pattern := regexp.MustCompile("^(?:" + match.GetAuthority().GetRegex() + ")$")
	for authority, want := range map[string]bool{
		"x.a.example": true, "X.A.Example": true, "x.a.example:8080": true, "x-y.a.example": true, "y.x.a.example": false, "a.example": false,
		".a.example": false, "x.a.example.org": false, "x.aXexample": false, "x.a.example:": false,
	} {
		require.Equal(t, want, pattern.MatchString(authority), authority)
	}
}
