package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/sources/consul/consultest"
)

// route is a virtual service with a route to host.
func route(name, host string, metadata ...string) string {
	return `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: ` + name + `
  namespace: shop
` + strings.Join(append(metadata, ""), "\n") + `spec:
  hosts: [` + name + `.example]
  http:
  - route:
    - destination: {host: ` + host + `}
`
}

// shop is a store, and a directory for files.
func shop(t *testing.T) (consul *consultest.Server, store, dir string) {
	t.Helper()
	consul = consultest.New(t)
	return consul, "consul-kv://" + consul.Address() + "/mesh", t.TempDir()
}

// unchecked is the note about references without a running server.
func unchecked(host string) string {
	return "references to " + host + " were not checked, since the content of a server was not read\n"
}

const reviewsKey = "mesh/virtualservices/shop/reviews"

func TestApplyRefusesAStaleVersion(t *testing.T) {
	consul, store, dir := shop(t)
	consul.Set(reviewsKey, route("reviews", "v1.example"))
	mine := command(t, "get", "vs", "reviews", "-n", "shop", "-o", "yaml", "--store", store).stdout
	consul.Set(reviewsKey, route("reviews", "theirs.example"))

	write(t, dir+"/mine.yaml", strings.Replace(mine, "v1.example", "mine.example", 1)+"---\n"+route("ratings", "v1.example"))
	got := command(t, "apply", "-f", dir+"/mine.yaml", "--store", store)
	require.Equal(t, 1, got.code)
	require.Equal(t, "virtualservice/ratings created\n", got.stdout, "one that is stale does not keep the others from being written")
	require.Contains(t, got.stderr, "virtualservice/reviews in namespace shop was changed by another user: resource version is stale: it is ")
	require.Contains(t, got.stderr, "apply again")
	require.Contains(t, got.stderr, "1 of 2 objects were not written")
	now := consul.Get(reviewsKey)
	require.Contains(t, now, "theirs.example")

	consul.Delete(reviewsKey)
	got = command(t, "apply", "-f", dir+"/mine.yaml", "--store", store)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "was deleted")

	consul.Set(reviewsKey, route("reviews", "v1.example"))
	fresh := command(t, "get", "vs", "reviews", "-n", "shop", "-o", "yaml", "--store", store).stdout
	write(t, dir+"/mine.yaml", strings.Replace(fresh, "v1.example", "mine.example", 1))
	require.Equal(t, result{0, "virtualservice/reviews configured\n", unchecked("mine.example")},
		command(t, "apply", "-f", dir+"/mine.yaml", "--store", store))
}

// editor makes a script the editor, which gets the name of the file as $1.
func editor(t *testing.T, script string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "editor")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o700)) //nolint:gosec // to be run
	t.Setenv("VISUAL", "")
	t.Setenv("EDITOR", path)
	t.Setenv("TMPDIR", t.TempDir())
}

// savedEdit returns the only file that edits left behind.
func savedEdit(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(os.Getenv("TMPDIR") + "/tributary-edit-*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	return string(text)
}

func noneKept(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(os.Getenv("TMPDIR") + "/tributary-edit-*")
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestEdit(t *testing.T) {
	consul, store, _ := shop(t)
	consul.Set(reviewsKey, route("reviews", "v1.example"))
	edit := func() result { return command(t, "edit", "vs", "reviews", "-n", "shop", "--store", store) }

	editor(t, `sed -i s/v1.example/v2.example/ "$1"`)
	require.Equal(t, result{0, "virtualservice/reviews edited\n", ""}, edit())
	noneKept(t)
	now := consul.Get(reviewsKey)
	require.Contains(t, now, "v2.example")
	require.NotContains(t, now, "resourceVersion", "which is the store's")

	editor(t, "true")
	require.Equal(t, result{0, "Edit cancelled, no changes made.\n", ""}, edit())
	noneKept(t)
	editor(t, `: > "$1"`)
	require.Equal(t, result{0, "Edit cancelled, saved file was empty.\n", ""}, edit())
	noneKept(t)

	editor(t, "exit 5")
	got := edit()
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "exit status 5; no object was written, and the file is ")

	got = command(t, "edit", "vs", "none", "-n", "shop", "--store", store)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "virtualservice/none not found in namespace shop")
}

func TestEdit_InvalidObjectOpensAgain(t *testing.T) {
	consul, store, _ := shop(t)
	consul.Set(reviewsKey, route("reviews", "v1.example"))
	edit := func() result { return command(t, "edit", "vs", "reviews", "-n", "shop", "--store", store) }

	// The first time something is misspelt; the second time, when the file says so, it is put right.
	editor(t, `if grep -q '^# line .*unknown field "hots"' "$1"; then sed -i s/hots:/hosts:/ "$1"; else sed -i 's/hosts:/hots:/; `+
		`s/v1.example/v2.example/' "$1"; fi`)
	require.Equal(t, result{0, "virtualservice/reviews edited\n", ""}, edit())
	now := consul.Get(reviewsKey)
	require.Contains(t, now, "v2.example")

	editor(t, `sed -i s/hosts:/hots:/ "$1"`)
	got := edit()
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "no valid changes were saved")
	require.Contains(t, got.stderr, `unknown field "hots"`)
	require.Contains(t, savedEdit(t), "hots:")

	editor(t, `sed -i 's/name: reviews/name: other/' "$1"`)
	got = edit()
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "kind, namespace and name cannot be edited")
}

func TestEdit_ConcurrentEdits(t *testing.T) {
	consul, store, _ := shop(t)
	consul.Set(reviewsKey, route("reviews", "v1.example"))
	input, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	// The first editor says that it is open, and saves when the second one is done.
	editor(t, `if [ -e `+input+` ]; then sed -i s/v1.example/second.example/ "$1"; exit; fi
touch `+input+`
until [ -e `+out+` ]; do sleep 0.01; done
sed -i s/v1.example/first.example/ "$1"`)
	var stdout, stderr testutil.Buffer
	first := make(chan int)
	go func() {
		first <- run(t.Context(), []string{"edit", "vs", "reviews", "-n", "shop", "--store", store}, &stdout, &stderr)
	}()
	eventually(t, func() error { _, err := os.Stat(input); return err })
	second := command(t, "edit", "vs", "reviews", "-n", "shop", "--store", store)
	require.Equal(t, result{0, "virtualservice/reviews edited\n", ""}, second)
	require.NoError(t, os.WriteFile(out, nil, 0o600))

	require.Equal(t, 1, <-first)
	require.Contains(t, stderr.String(), "virtualservice/reviews in namespace shop was changed by another user")
	require.Contains(t, stderr.String(), "edit it again\nthe edit is kept in ")
	require.Contains(t, savedEdit(t), "first.example")
	now := consul.Get(reviewsKey)
	require.Contains(t, now, "second.example")
}

// TestApplyChecksTheServer checks manifests together with the objects that a server serves, and so does validate.
func TestApplyChecksTheServer(t *testing.T) {
	consul, store, dir := shop(t)
	write(t, dir+"/served/b.yaml", entry("b", 80)+"---\n"+`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: b, namespace: shop}
spec: {host: b.example, subsets: [{name: v1, labels: {version: v1}}]}
`)
	server := serving(t, served(dir+"/served")...)
	server.awaitReady(t)
	for name, c := range map[string]struct {
		destination, want string
	}{
		"right":           {"b.example, subset: v1", ""},
		"host alone":      {"b.example", ""},
		"missing host":    {"c.example", "no ServiceEntry has the host c.example"},
		"missing subset":  {"b.example, subset: v2", `has no subset "v2" of b.example`},
		"missing in both": {"c.example, subset: v1", "no DestinationRule of c.example for clients in shop has subsets"},
		"host not served": {"b.example.org", "no ServiceEntry has the host b.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			consul.Delete(reviewsKey)
			path := t.TempDir() + "/a.yaml"
			write(t, path, route("reviews", c.destination))
			checked := command(t, "validate", "--server", "--admin", server.admin, path)
			applied := command(t, "apply", "-f", path, "--store", store, "--admin", server.admin)
			if c.want == "" {
				require.Equal(t, result{0, "virtualservice/reviews created\n", ""}, applied)
				require.Zero(t, checked.code, checked.stdout)
				return
			}
			require.Equal(t, 3, applied.code)
			require.Contains(t, applied.stderr, c.want)
			require.Equal(t, 3, checked.code)
			require.Contains(t, checked.stdout, c.want)
			require.Empty(t, consul.Keys())
			require.Zero(t, command(t, "apply", "-f", path, "--store", store, "--admin", server.admin, "--force").code)
		})
	}
}
