package file

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	t.Run("one file each", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness { return &tree{t: t, root: emptyDir(t)} })
	})
	t.Run("derived", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
			return &routeTree{tree{t: t, root: emptyDir(t), derive: &derive.Options{}}}
		})
	})
	t.Run("without events", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness { return &tree{t: t, root: emptyDir(t), blind: true} })
	})
}

func emptyDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

// tree is a directory with one file for each object, in a directory of its own.
type tree struct {
	t      *testing.T
	root   string
	derive *derive.Options
	blind  bool // the file system does not tell of changes
}

func (h *tree) Source() sources.Source {
	source, err := New("fs://"+h.root, Settings{
		QuietDelay: 5 * time.Millisecond, RescanInterval: 100 * time.Millisecond, Derive: h.derive,
	})
	require.NoError(h.t, err)
	if h.blind {
		source.blind = true
	}
	return source
}

func (h *tree) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: name}
}

func (h *tree) path(name string) string {
	path := h.root
	if _, err := os.Stat(path); err != nil {
		path += ".away"
	}
	return filepath.Join(path, name, "entry.yaml")
}

func (h *tree) Put(name string, revision int) {
	h.write(name, entry(name, fmt.Sprintf("r%d.%s.example.com", revision, name)))
}

func (h *tree) Break(name string) { h.write(name, entry(name, `"not a host"`)) }

func (h *tree) write(name, text string) {
	p := h.path(name)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(p), 0o700))
	require.NoError(h.t, os.WriteFile(p+".tmp", []byte(text), 0o600))
	require.NoError(h.t, os.Rename(p+".tmp", p))
}

func (h *tree) Delete(name string) { require.NoError(h.t, os.RemoveAll(filepath.Dir(h.path(name)))) }
func (h *tree) Unreachable()       { require.NoError(h.t, os.Rename(h.root, h.root+".away")) }
func (h *tree) Restore()           { require.NoError(h.t, os.Rename(h.root+".away", h.root)) }

// routeTree is a directory with one HTTPRoute in each file, and a VirtualService is derived from each.
type routeTree struct{ tree }

func (h *routeTree) Key(name string) resource.Key { return keyOfRoute(name) }

func (h *routeTree) Put(name string, revision int) {
	h.write(name, route(name, fmt.Sprintf("r%d", revision)))
}

func (h *routeTree) Break(name string) { h.write(name, brokenRoute(name)) }

// route is an HTTPRoute that adds a header to requests for a Service of its name.
func route(name, header string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{group: "", kind: Service, name: %[1]s}]
  rules:
  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x, value: %[2]s}]}}]
    backendRefs: [{name: %[1]s, port: 80}]
`, name, header)
}

func brokenRoute(name string) string {
	return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s}\nspec: {rules: 1}\n", name)
}

// keyOfRoute is that of the VirtualService that is derived of a route.
func keyOfRoute(name string) resource.Key {
	merged := derive.MergedName("default/" + name + ".default.svc.cluster.local")
	return resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: merged}
}
