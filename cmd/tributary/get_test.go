package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGet_SeveralKinds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80)+"---\n"+strings.Replace(entry("ratings", 80), "namespace: shop",
		"namespace: shop, labels: {app: ratings}", 1)+`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews.example}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: other, namespace: mall}
spec: {host: other.example}
`)
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	ages := regexp.MustCompile(`\d+s`)
	for line, c := range map[string]struct {
		says, complains string
		code            int
	}{
		"se,dr -A -o name": {
			"serviceentry/shop/ratings\nserviceentry/shop/reviews\ndestinationrule/mall/other\ndestinationrule/shop/reviews\n",
			"", 0,
		},
		"all -n shop -o name": {
			"destinationrule/shop/reviews\nserviceentry/shop/ratings\nserviceentry/shop/reviews\n", "",
			0,
		},
		"all":                                  {"", "no objects in namespace default; there are 4 in other namespaces (-A)\n", 0},
		"dr":                                   {"", "no destinationrules in namespace default; there are 2 in other namespaces (-A)\n", 0},
		"se shop/reviews shop/ratings -o name": {"serviceentry/shop/reviews\nserviceentry/shop/ratings\n", "", 0},
		"se reviews nothing -n shop -o name": {
			"serviceentry/shop/reviews\n",
			"error: " + s.xds + " has no ServiceEntry nothing in namespace shop\n", 1,
		},
		"se/shop/reviews dr/mall/other -o name": {"serviceentry/shop/reviews\ndestinationrule/mall/other\n", "", 0},
		"se -A -l app=ratings -o name":          {"serviceentry/shop/ratings\n", "", 0},
		"se -A -l app!=ratings -o name":         {"serviceentry/shop/reviews\n", "", 0},
		"se -A -l app=nobody":                   {"", "no serviceentries with labels app=nobody at all\n", 0},
		"dr -n shop --no-headers":               {"reviews   reviews.example   Ns\n", "", 0},
		"se,dr -n shop -l app=ratings -o wide": {"NAME                   HOSTS             LOCATION        RESOLUTION   AGE   " +
			"LABELS\nserviceentry/ratings   ratings.example   MESH_EXTERNAL   NONE         Ns    app=ratings\n", "", 0},
		"se,dr -n shop --no-headers -l app!=none": {"serviceentry/ratings   ratings.example   MESH_EXTERNAL   NONE   Ns\nserviceentry/reviews  " +
			" reviews.example   MESH_EXTERNAL   NONE   Ns\ndestinationrule/reviews   reviews.example   Ns\n", "", 0},
		"se -l x=y=z":             {"", "error: --selector x=y=z: ", 2},
		"all reviews":             {"", "error: a NAME is of one kind, and not of all\n", 2},
		"se/shop/reviews reviews": {"", "want KIND/[NAMESPACE/]NAME, as before it, got", 2},
	} {
		got := command(t, append([]string{"get", "--server", s.xds, "--admin", s.admin}, strings.Fields(line)...)...)
		assert.Equal(t, c.code, got.code, line)
		assert.Equal(t, c.says, ages.ReplaceAllString(got.stdout, "Ns"), line)
		assert.Contains(t, got.stderr, c.complains, line)
	}
	var list struct{ Items []any }
	require.NoError(t, json.Unmarshal([]byte(command(t, "get", "se,dr", "-A", "-o", "json", "--server", s.xds).stdout), &list))
	assert.Len(t, list.Items, 4)
	assert.Equal(t, 3, strings.Count(command(t, "get", "all", "-A", "-o", "yaml", "--server", s.xds).stdout, "---\n"))
}

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

// TestGet_JSONPathAndSortBy checks expressions in the forms that kubectl takes.
func TestGet_JSONPathAndSortBy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 9000)+"---\n"+entry("b", 80)+"---\n"+entry("c", 443))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	get := func(args ...string) result {
		return command(t, append([]string{"get", "se", "-n", "shop", "--server", s.xds}, args...)...)
	}
	for name, c := range map[string]struct {
		args []string
		want result
	}{
		"a list":         {[]string{"-o", "jsonpath={.items[*].metadata.name}"}, result{0, "a b c", ""}},
		"one":            {[]string{"a", "-o", "jsonpath={.spec.hosts[0]}"}, result{0, "a.example", ""}},
		"without braces": {[]string{"a", "-o", "jsonpath=.spec.hosts[0]"}, result{0, "a.example", ""}},
		"a loop": {
			[]string{"-o", `jsonpath={range .items[*]}{.metadata.name}:{.spec.ports[0].number}{"\n"}{end}`},
			result{0, "a:9000\nb:80\nc:443\n", ""},
		},
		"a missing field":  {[]string{"a", "-o", "jsonpath={.spec.nothing}"}, result{0, "", ""}},
		"sorted by number": {[]string{"-o", "jsonpath={.items[*].metadata.name}", "--sort-by", ".spec.ports[0].number"}, result{0, "b c a", ""}},
		"sorted by name": {
			[]string{"-o", "name", "--sort-by", "{.metadata.name}"},
			result{0, "serviceentry/shop/a\nserviceentry/shop/b\nserviceentry/shop/c\n", ""},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, get(c.args...)) })
	}
	for _, args := range [][]string{{"-o", "jsonpath={.items[}"}, {"--sort-by", "{"}, {"-w", "-o", "jsonpath={.x}"}, {"-o", "jsonpat"}} {
		assert.Equal(t, 2, get(args...).code, args)
	}
}
