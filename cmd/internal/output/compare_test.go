package output_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/cmd/internal/output"
	"tributary/resource"
)

func object(t *testing.T, name, place string, hosts ...string) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{
		Key:    resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name},
		Origin: resource.Origin{Place: place},
	}, &networking.ServiceEntry{Hosts: hosts})
	require.NoError(t, err)
	return r
}

func side(name string, objects ...*resource.Resource) *output.Side {
	s := &output.Side{Name: name}
	for _, r := range objects {
		s.Add(r)
	}
	return s
}

func TestWriteDifferences(t *testing.T) {
	server := side("127.0.0.1:16010", object(t, "same", "", "s"), object(t, "changed", "", "a", "b"),
		object(t, "gone", "", "g"))
	files := side("rules/", object(t, "changed", "rules/c.yaml:7", "a", "c"),
		object(t, "changed", "rules/z.yaml:1", "second"),
		object(t, "new", "rules/n.yaml:1", "h"), object(t, "same", "rules/s.yaml:1", "s"))

	var builder strings.Builder
	d, err := output.WriteDifferences(&builder, server, files)
	require.NoError(t, err)
	assert.Equal(t, output.Differences{OnlyInFirst: 1, OnlyInSecond: 1, Changed: 1}, d)
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
`, builder.String())
}

func TestNoDifference(t *testing.T) {
	var builder strings.Builder
	differences, err := output.WriteDifferences(&builder, side("a", object(t, "x", "there", "h")),
		side("b", object(t, "x", "elsewhere", "h")))
	require.NoError(t, err)
	assert.Zero(t, differences)
	assert.Empty(t, builder.String())
	differences, err = output.WriteDifferences(&builder, &output.Side{}, &output.Side{})
	require.NoError(t, err)
	assert.Zero(t, differences)
}

// TestFieldsThatAreNotKnown: YAML does not show them, and yet they are a difference.
func TestFieldsThatAreNotKnown(t *testing.T) {
	old := object(t, "x", "", "h")
	// field 1023
	newer := resource.FromBody(old.Meta(), append(old.Body()[:len(old.Body()):len(old.Body())], 0xfa, 0x3f, 0x01, 'x'))
	var out strings.Builder
	d, err := output.WriteDifferences(&out, side("a", old), side("b", newer))
	require.NoError(t, err)
	assert.Equal(t, 1, d.Changed)
	assert.Contains(t, out.String(), "--- a ServiceEntry shop/x\n+++ b ServiceEntry shop/x\nthe objects differ in fields")
}

// TestTieBreakers compares two sides that differ only in times and ranks, which order competing objects in istiod.
func TestTieBreakers(t *testing.T) {
	day := func(d int) time.Time { return time.Date(2026, 1, d, 0, 0, 0, 0, time.UTC) }
	x, y := object(t, "x", "", "h"), object(t, "y", "", "h")
	files := side("rules/", x, y)
	files.Undated = true
	dated := side("files", x.WithCreated(day(1)), y.WithCreated(day(2)))
	dated.Undated = true
	for _, testCase := range []struct {
		name          string
		first, second *output.Side
		differ        int
		contains      string
	}{
		{"the same times", side("a", x.WithCreated(day(1)), y), side("b", x.WithCreated(day(1)), y), 0, ""},
		{
			"other times", side("a", x.WithCreated(day(1)), y), side("b", x.WithCreated(day(2)), y), 1,
			`+  creationTimestamp: "2026-01-02T00:00:00Z"`,
		},
		{
			"a time and none", side("a", x.WithCreated(day(1))), side("b", x), 1,
			`-  creationTimestamp: "2026-01-01T00:00:00Z"`,
		},
		{"files name no time", side("a", x.WithCreated(day(1)), y.Ranked(3)), files, 0, ""},
		{
			"files name another time", side("a", x.WithCreated(day(1)), y.WithCreated(day(1))), dated, 1,
			`+  creationTimestamp: "2026-01-02T00:00:00Z"`,
		},
		{"the same order of sources", side("a", x.Ranked(1), y), side("b", x.Ranked(1), y), 0, ""},
		{
			"another order of sources", side("a", x.Ranked(1), y), side("b", x, y.Ranked(1)), 2,
			"their sources are in another order",
		},
		{"one side knows of no order", side("a", x.Ranked(1), y), side("istiod", x, y), 0, ""},
	} {
		t.Run(testCase.name, func(t *testing.T) {
			var builder strings.Builder
			d, err := output.WriteDifferences(&builder, testCase.first, testCase.second)
			require.NoError(t, err)
			assert.Equal(t, testCase.differ, d.Changed)
			assert.Contains(t, builder.String(), testCase.contains)
		})
	}
	var out strings.Builder
	_, err := output.WriteDifferences(&out, side("a", object(t, "x", "", "old").WithCreated(day(1))), files)
	require.NoError(t, err)
	assert.NotContains(t, out.String(), "creationTimestamp", "files leave it as it is")
}
