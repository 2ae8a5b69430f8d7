package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCompletion_ServerNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80)+"---\n"+entry("ratings", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	t.Setenv(envServer, s.xds)
	t.Setenv(envAdmin, s.admin)
	for line, want := range map[string]string{
		"get se -n shop ":     "ratings\nreviews\n",
		"get se -A ":          "shop/ratings\nshop/reviews\n",
		"get se shop/":        "shop/ratings\nshop/reviews\n",
		"explain se ":         "shop/ratings\nshop/reviews\n",
		"get se --namespace ": "shop\n",
		"guard release ":      "",
	} {
		args := strings.Split(line, " ")
		got := command(t, append([]string{"__complete"}, args...)...)
		assert.Equal(t, want, got.stdout[:strings.Index(got.stdout, ":")], line)
	}
	t.Setenv(envServer, "127.0.0.1:1")
	got := command(t, "__complete", "get", "se", "")
	assert.True(t, strings.HasPrefix(got.stdout, ":"), "without a server there is no suggestion: %s", got.stdout)
}
