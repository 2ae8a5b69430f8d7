package compare_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/cmd/internal/compare"
	"tributary/resource"
)

func object(t *testing.T, name, place string, hosts ...string) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{
		Key:     resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name},
		Origin:  resource.Origin{Place: place},
		Created: time.Unix(int64(len(place)), 0),
	}, &networking.ServiceEntry{Hosts: hosts})
	require.NoError(t, err)
	return r
}

func side(name string, objects ...*resource.Resource) *compare.Side {
	s := &compare.Side{Name: name}
	for _, r := range objects {
		s.Add(r)
	}
	return s
}

func TestWrite(t *testing.T) {
	server := side("127.0.0.1:16010", object(t, "same", "", "s"), object(t, "changed", "", "a", "b"), object(t, "gone", "", "g"))
	files := side("rules/", object(t, "changed", "rules/c.yaml:7", "a", "c"), object(t, "changed", "rules/z.yaml:1", "second"),
		object(t, "new", "rules/n.yaml:1", "h"), object(t, "same", "rules/s.yaml:1", "s"))
	assert.Equal(t, 3, files.Len(), "the first of a key counts")

	var out strings.Builder
	d, err := compare.Write(&out, server, files)
	require.NoError(t, err)
	assert.Equal(t, compare.Differences{OnlyInFirst: 1, OnlyInSecond: 1, Changed: 1}, d)
	assert.Equal(t, 3, d.Total())
	assert.Equal(t, `--- 127.0.0.1:16010 ServiceEntry shop/changed
+++ rules/c.yaml:7 ServiceEntry shop/changed
@@ -6,4 +6,4 @@
 spec:
   hosts:
     - a
-    - b
+    - c
--- 127.0.0.1:16010 ServiceEntry shop/gone
+++ /dev/null
@@ -1,8 +0,0 @@
-apiVersion: networking.istio.io/v1
-kind: ServiceEntry
-metadata:
-  name: gone
-  namespace: shop
-spec:
-  hosts:
-    - g
--- /dev/null
+++ rules/n.yaml:1 ServiceEntry shop/new
@@ -0,0 +1,8 @@
+apiVersion: networking.istio.io/v1
+kind: ServiceEntry
+metadata:
+  name: new
+  namespace: shop
+spec:
+  hosts:
+    - h
`, out.String())
}

func TestNoDifference(t *testing.T) {
	var out strings.Builder
	d, err := compare.Write(&out, side("a", object(t, "x", "there", "h")), side("b", object(t, "x", "elsewhere", "h")))
	require.NoError(t, err)
	assert.Zero(t, d)
	assert.Empty(t, out.String())
	d, err = compare.Write(&out, &compare.Side{}, &compare.Side{})
	require.NoError(t, err)
	assert.Zero(t, d)
}

// TestFieldsThatAreNotKnown: YAML does not show them, and yet they are a difference.
func TestFieldsThatAreNotKnown(t *testing.T) {
	old := object(t, "x", "", "h")
	newer := resource.FromBody(old.Meta(), append(old.Body()[:len(old.Body()):len(old.Body())], 0xfa, 0x3f, 0x01, 'x')) // field 1023
	var out strings.Builder
	d, err := compare.Write(&out, side("a", old), side("b", newer))
	require.NoError(t, err)
	assert.Equal(t, 1, d.Changed)
	assert.Contains(t, out.String(), "--- a ServiceEntry shop/x\n+++ b ServiceEntry shop/x\nthe objects differ in fields")
}
