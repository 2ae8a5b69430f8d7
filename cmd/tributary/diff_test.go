package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/reviews.yaml", entry("reviews", 80))
	write(t, dir+"/a/ratings.yaml", entry("ratings", 80))
	write(t, dir+"/b/all.yaml", entry("reviews", 81)+"---\n"+entry("ratings", 80))
	a := serving(t, served(dir+"/a")...)
	a.awaitReady(t)
	b := serving(t, served(dir+"/b")...)
	b.awaitReady(t)

	same := "0 objects differ, 0 are only in " + a.xds + ", 0 only in " + dir + "/a\n"
	assert.Equal(t, result{0, "", same}, command(t, "diff", dir+"/a", "--server", a.xds), "the served objects are those that were read")

	got := command(t, "diff", dir+"/b", "--server", a.xds)
	assert.Equal(t, 3, got.code)
	assert.Equal(t, "1 object differs, 0 are only in "+a.xds+", 0 only in "+dir+"/b\n", got.stderr)
	assert.Contains(t, got.stdout, "--- "+a.xds+" ServiceEntry shop/reviews\n+++ "+dir+"/b/all.yaml:1 ServiceEntry shop/reviews\n@@ ")
	assert.Contains(t, got.stdout, "\n-    - number: 80\n+    - number: 81\n")
	assert.Equal(t, 1, strings.Count(got.stdout, "+++"))

	got = command(t, "diff", "--server", b.xds, "--server", a.xds)
	assert.Equal(t, 3, got.code)
	assert.Contains(t, got.stdout, "--- "+b.xds+" ServiceEntry shop/reviews\n+++ "+a.xds+" ServiceEntry shop/reviews\n@@ ")

	got = command(t, "diff", dir+"/a", dir+"/b")
	assert.Equal(t, 3, got.code)
	assert.Contains(t, got.stdout, "--- "+dir+"/a/reviews.yaml:1 ServiceEntry shop/reviews\n")
	assert.Zero(t, command(t, "diff", dir+"/a", dir+"/b", "--kind", "vs", "--kind", "gw").code)
	assert.Zero(t, command(t, "diff", dir+"/a", dir+"/b", "-n", "other").code)
	assert.Equal(t, 3, command(t, "diff", dir+"/a", dir+"/b", "-n", "shop", "--kind", "se").code)

	// An object that would be quarantined is no deletion.
	write(t, dir+"/c/all.yaml", entry("reviews", 80000)+"---\n"+entry("ratings", 80))
	got = command(t, "diff", dir+"/c", "--server", a.xds)
	assert.Equal(t, 3, got.code)
	assert.Equal(t, "0 objects differ, 0 are only in "+a.xds+", 0 only in "+dir+"/c, 1 would be quarantined\n", got.stderr)
	assert.Equal(t, "# ServiceEntry shop/reviews: quarantined, the object of "+a.xds+" stays: "+dir+
		"/c/all.yaml:4:51: ServiceEntry shop/reviews: port number 80000 must be in the range 1..65535\n", got.stdout)
	write(t, dir+"/c/all.yaml", entry("reviews", 80)+"---\n[")
	got = command(t, "diff", dir+"/c", "--server", a.xds)
	assert.Equal(t, 3, got.code)
	assert.Contains(t, got.stderr, "0 are only in "+a.xds+", 0 only in "+dir+
		"/c, 1 may be in unreadable inputs, and would stay until these can be read\n")

	write(t, dir+"/a/broken.yaml", "[")
	got = command(t, "diff", dir+"/a", "--server", a.xds)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "warning: "+dir+"/a/broken.yaml:1")
	assert.Contains(t, got.stderr, "error: not compared, since it cannot be read: 1 object\n")
}
