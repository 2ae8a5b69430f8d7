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
	t.Parallel()
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

func (t *tree) Source() sources.Source {
	source, err := New("fs://"+t.root, Settings{
		QuietDelay: 5 * time.Millisecond, RescanInterval: 100 * time.Millisecond, Derive: t.derive,
	})
	require.NoError(t.t, err)
	if t.blind {
		source.blind = true
	}
	return source
}

func (t *tree) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: name}
}

func (t *tree) path(name string) string {
	path := t.root
	if _, err := os.Stat(path); err != nil {
		path += ".away"
	}
	return filepath.Join(path, name, "entry.yaml")
}

func (t *tree) Put(name string, revision int) {
	t.write(name, entry(name, fmt.Sprintf("r%d.%s.example.com", revision, name)))
}

func (t *tree) Break(name string) { t.write(name, entry(name, `"not a host"`)) }

func (t *tree) write(name, text string) {
	p := t.path(name)
	require.NoError(t.t, os.MkdirAll(filepath.Dir(p), 0o700))
	require.NoError(t.t, os.WriteFile(p+".tmp", []byte(text), 0o600))
	require.NoError(t.t, os.Rename(p+".tmp", p))
}

func (t *tree) Delete(name string) { require.NoError(t.t, os.RemoveAll(filepath.Dir(t.path(name)))) }
func (t *tree) Unreachable()       { require.NoError(t.t, os.Rename(t.root, t.root+".away")) }
func (t *tree) Restore()           { require.NoError(t.t, os.Rename(t.root+".away", t.root)) }

// routeTree is a directory with one HTTPRoute in each file, and a VirtualService is derived from each.
type routeTree struct{ tree }

func (r *routeTree) Key(name string) resource.Key { return keyOfRoute(name) }

func (r *routeTree) Put(name string, revision int) {
	r.write(name, route(name, fmt.Sprintf("r%d", revision)))
}

func (r *routeTree) Break(name string) { r.write(name, brokenRoute(name)) }

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
