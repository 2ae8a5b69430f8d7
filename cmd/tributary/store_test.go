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

const reviewsKey = "mesh/virtualservices/shop/reviews"

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
