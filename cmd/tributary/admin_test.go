package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/first/a.yaml", entry("reviews", 80))
	write(t, dir+"/second/b.yaml", entry("reviews", 81)+"---\n"+entry("bad", 80000))
	s := serving(t, append(freely, "--config-source", "fs://"+dir+"/first", "--config-source", "fs://"+dir+"/second")...)
	s.awaitReady(t)
	var events testutil.Buffer
	stop := commandUntil(t, &events, "watch", "se", "--server", s.xds)
	defer stop()
	eventually(t, func() error {
		return contains(command(t, "explain", "se", "shop/reviews", "--admin", s.admin).stdout, "acknowledged after")
	})

	got := command(t, "explain", "serviceentry", "reviews", "-n", "shop", "--admin", s.admin)
	assert.Zero(t, got.code, got.stderr)
	assert.Contains(t, got.stdout, "ServiceEntry shop/reviews\n  served from   first: "+dir+"/first/a.yaml:1  [")
	assert.Contains(t, got.stdout, "\n  because       first comes before second in the order of sources\n  not used      second: "+dir+
		"/second/b.yaml:1  [")

	got = command(t, "explain", "reviews.example", "--admin", s.admin)
	assert.Zero(t, got.code, got.stderr)
	assert.Contains(t, got.stdout, "ServiceEntry shop/reviews\n")

	got = command(t, "explain", "se", "shop/bad", "--admin", s.admin)
	assert.Zero(t, got.code, got.stderr)
	assert.Contains(t, got.stdout, dir+"/second/b.yaml:9:47: ServiceEntry shop/bad: port number 80000")

	got = command(t, "explain", "se", "rewiews", "--admin", s.admin)
	assert.Equal(t, result{1, "ServiceEntry default/rewiews: no source has it\n  similar       ServiceEntry shop/reviews\n", ""}, got)
	got = command(t, "explain", "vs", "shop/reviews", "-o", "json", "--admin", s.admin)
	assert.Equal(t, 1, got.code)
	assert.True(t, json.Valid([]byte(got.stdout)))
}

// TestStatus_ExcludesCommands has a command ask for clusters, as Envoys do.
func TestStatus_ExcludesCommands(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	var events testutil.Buffer
	stop := commandUntil(t, &events, "watch", "clusters", "--server", s.xds, "--node-id", "sidecar~10.0.0.7~web.shop~shop.svc.cluster.local")
	defer stop()
	eventually(t, func() error { return contains(events.String(), "reviews.example") })
	assert.Contains(t, command(t, "status", "--admin", s.admin).stdout, "sidecar~10.0.0.7~web.shop")
	assert.NotContains(t, command(t, "explain", "se", "shop/reviews", "--admin", s.admin).stdout, "Envoys and gRPC")
}

// TestExplain_ShowsTransformedObject: explain shows an object as its source has it and as it is served, also after
// a restart that can no longer read it, and the changes that clients do not get.
func TestExplain_ShowsTransformedObject(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources:\n- name: rules\n  address: 'fs://./rules'\n  transform: "+
		"{hosts: [{match: '*.example', to: '{1}.mesh'}], labels: {drop: [build]}}\n")
	labelled := func(build string) string {
		return strings.Replace(entry("reviews", 80), "metadata: {", "metadata: {labels: {build: '"+build+"'}, ", 1)
	}
	write(t, dir+"/rules/a.yaml", labelled("1"))
	shown := func(s server, build string) {
		t.Helper()
		eventually(t, func() error {
			got := command(t, "explain", "se", "shop/reviews", "--admin", s.admin)
			return errors.Join(contains(got.stdout, "-    - reviews.example\n                    +    - reviews.mesh\n"),
				contains(got.stdout, `build: "`+build+`"`))
		})
		_, page := s.page(t, "/?object=ServiceEntry/shop/reviews")
		require.Contains(t, page, `<span class="del">-    - reviews.example`)
	}
	t.Run("as it is read", func(t *testing.T) {
		s := serving(t, "-c", dir+"/tributary.yaml")
		s.awaitReady(t)
		shown(s, "1")
		write(t, dir+"/rules/a.yaml", labelled("2"))
		shown(s, "2")
	})
	write(t, dir+"/rules/a.yaml", "spec: {")
	t.Run("after a restart", func(t *testing.T) {
		s := serving(t, "-c", dir+"/tributary.yaml")
		s.awaitReady(t)
		shown(s, "2")
	})
}
