package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStatus_SeveralServers asks several servers at once: some serve the same, one serves other objects, and one does
// not answer.
func TestStatus_SeveralServers(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/a.yaml", entry("a", 80)+"---\n"+entry("b", 80))
	write(t, dir+"/same/b.yaml", entry("b", 80))
	write(t, dir+"/same/a.yaml", entry("a", 80))
	write(t, dir+"/other/a.yaml", entry("a", 81)+"---\n"+entry("b", 80))
	var first, same, different server
	for name, s := range map[string]*server{"a": &first, "same": &same, "other": &different} {
		*s = serving(t, served(dir+"/"+name)...)
		s.awaitReady(t)
		eventually(t, func() error { return contains(command(t, "status", "--check", "--admin", s.admin).stdout, "ok: ") })
	}
	got := command(t, "status", "--admin", first.admin+","+same.admin)
	require.Zero(t, got.code, got.stderr)
	assert.Regexp(t, `^INSTANCE +READY +CONTENT +OBJECTS +UNHEALTHY +HOLDS +CLIENTS +UP\n`+first.admin+
		` +yes +([0-9a-f]{16}) +2 +0 +0 +0 .*\n`+same.admin+` +yes +[0-9a-f]{16} +2 +0 +0 +0 .*\n$`, got.stdout)
	got = command(t, "status", "--check", "--admin", first.admin+","+same.admin)
	assert.Equal(t, result{0, "ok: 2 instances, 2 objects, 0 clients\n", ""}, got)

	got = command(t, "status", "--admin", first.admin+","+different.admin)
	assert.Zero(t, got.code)
	assert.Contains(t, got.stdout, "\nthe instances serve different content\n")
	got = command(t, "status", "--check", "--admin", first.admin+", "+different.admin)
	assert.Equal(t, 3, got.code)
	assert.Regexp(t, first.admin+`: serves content [0-9a-f]{16}, 2 objects: not the same as the others\n`+different.admin+`: serves content`,
		got.stdout)

	got = command(t, "status", "--admin", first.admin+",127.0.0.1:1")
	assert.Equal(t, 1, got.code)
	assert.Regexp(t, `\n127.0.0.1:1 +- +.*no server listens`, got.stdout)
	got = command(t, "status", "--check", "--admin", first.admin+",127.0.0.1:1")
	assert.Equal(t, 3, got.code)
	assert.Regexp(t, `^127.0.0.1:1: .*no server listens`, got.stdout)
	got = command(t, "status", "--check", "-o", "json", "--admin", first.admin+",127.0.0.1:1")
	assert.Equal(t, 3, got.code)
	var statuses []struct {
		Name, Error string
		Status      *struct{ Objects int }
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &statuses))
	require.Len(t, statuses, 2)
	assert.Equal(t, 2, statuses[0].Status.Objects)
	assert.Contains(t, statuses[1].Error, "no server listens")
	write(t, dir+"/same/c.yaml", entry("bad", 80000))
	eventually(t, func() error {
		return contains(command(t, "status", "--check", "--admin", first.admin+","+same.admin).stdout, same.admin+": ")
	})
}
