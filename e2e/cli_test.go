package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestGet shows that `tributary get` prints the served objects, of tributary and of an istiod alike, in the form of a
// file.
func TestGet(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{
		"se": "ServiceEntry", "vs": "VirtualService", "dr": "DestinationRule",
		"gw": "Gateway", "we": "WorkloadEntry", "wg": "WorkloadGroup",
	}
	dir, err := filepath.Abs(filepath.Join("testdata", "kinds"))
	require.NoError(t, err)
	tributary, istiod := serve(t, dir)
	objects := fixture.ReadObjects(t, dir)
	for server, addr := range map[string]string{"tributary": tributary.XDS, "istiod": istiod.GRPC} {
		for short, kind := range kinds {
			t.Run(server+"/"+short, func(t *testing.T) {
				want := maps.Clone(objects)
				maps.DeleteFunc(want, func(k fixture.Key, _ *fixture.Object) bool { return k.Kind != kind })
				out, code := fixture.Run(t, fixture.TributaryBinary(t), "get", short, "-A", "-o", "yaml", "--server", addr)
				require.Zero(t, code)
				require.NoError(t, want.Diff(fixture.ParseObjects(t, out)), "of:\n%s", out)
			})
		}
	}
}

// TestEnvoyTypes shows that `tributary get` prints the resources that an istiod sends to Envoys, and `watch` each
// change of them.
func TestEnvoyTypes(t *testing.T) {
	t.Parallel()
	port := fixture.FreePort(t)
	dir := t.TempDir()
	write(t, dir, "echo.yaml", echoService(port, 4711, 4712))
	write(t, dir, "route.yaml", echoRoute("one"))
	_, istiod := serve(t, dir)
	istiod.AwaitFolders(t, dir)
	ask := func(verb, kind string) []string {
		return []string{
			fixture.TributaryBinary(t), verb, kind, "--server", istiod.GRPC, "--node-id", nodeOfVM,
			"--metadata", "NAMESPACE=default,INTERCEPTION_MODE=NONE,ISTIO_VERSION=1.27.9",
		}
	}
	for kind, want := range map[string][]string{
		"clusters":  {fmt.Sprintf(`"outbound|%d||echo.mesh.internal"`, port), fmt.Sprintf(`"outbound|%d|two|echo.mesh.internal"`, port)},
		"endpoints": {fmt.Sprintf(`"outbound|%d|two|echo.mesh.internal"`, port), "4711", "4712"},
		"listeners": {fmt.Sprintf(`"127.0.0.1_%d"`, port)},
		"routes":    {fmt.Sprintf(`"echo.mesh.internal:%d"`, port), fmt.Sprintf(`"outbound|%d|one|echo.mesh.internal"`, port)},
	} {
		t.Run(kind, func(t *testing.T) {
			out, code := fixture.Run(t, append(ask("get", kind), "-o", "json")...)
			require.Zero(t, code)
			require.True(t, json.Valid([]byte(out)))
			for _, text := range want {
				assert.Contains(t, out, text)
			}
			table, code := fixture.Run(t, ask("get", kind)...)
			require.Zero(t, code)
			assert.Regexp(t, `(?m)^NAME`, table)
		})
	}

	clusters := fixture.Start(t, "watch clusters", nil, ask("watch", "clusters")...)
	endpoints := fixture.Start(t, "watch endpoints", nil, ask("watch", "endpoints")...)
	await := func(p *fixture.Process, change, resource string) {
		t.Helper()
		p.Await(t, func() error {
			line := fmt.Sprintf("%-7s  %s", change, resource)
			if !strings.Contains(p.Output(), line) {
				return fmt.Errorf("no line %q in:\n%s", line, p.Output())
			}
			return nil
		})
	}
	await(clusters, "added", fmt.Sprintf("clusters outbound|%d||echo.mesh.internal", port))
	await(endpoints, "added", fmt.Sprintf("endpoints outbound|%d||echo.mesh.internal", port))
	added := strings.ReplaceAll(echoService(port+1, 4713, 4714), "echo", "added")
	write(t, dir, "added.yaml", added)
	await(clusters, "added", fmt.Sprintf("clusters outbound|%d||added.mesh.internal", port+1))
	write(t, dir, "echo.yaml", echoService(port, 4711, 4715))
	await(endpoints, "updated", fmt.Sprintf("endpoints outbound|%d|two|echo.mesh.internal", port))
	require.NoError(t, os.Remove(filepath.Join(dir, "added.yaml")))
	await(clusters, "deleted", fmt.Sprintf("clusters outbound|%d||added.mesh.internal", port+1))
}

// TestDiffServer shows that `tributary diff` finds no difference between tributary, an istiod that reads from it, and
// the files, and names the objects that differ otherwise.
func TestDiffServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fillWith(t, dir, 3)
	tributary, istiod := serve(t, dir)
	istiod.AwaitFolders(t, dir)
	// An istiod has a mesh configuration of its own, always.
	diff := func(args ...string) (string, int) {
		return fixture.Run(t, append([]string{fixture.TributaryBinary(t), "diff", "--kind", "se", "--kind", "vs"}, args...)...)
	}
	for _, sides := range [][]string{
		{"--server", tributary.XDS, "--server", istiod.GRPC},
		{dir, "--server", tributary.XDS},
		{dir, "--server", istiod.GRPC},
	} {
		out, code := diff(sides...)
		assert.Zero(t, code, "%v: %s", sides, out)
		assert.Empty(t, out)
	}
	changedDir := t.TempDir()
	fillWith(t, changedDir, 2)
	write(t, changedDir, "s001.yaml", serviceEntry("s001", 81))
	for name, addr := range map[string]string{"tributary": tributary.XDS, "istiod": istiod.GRPC} {
		out, code := diff(changedDir, "--server", addr)
		assert.Equal(t, 3, code, name)
		assert.NotContains(t, out, "s000")
		assert.Contains(t, out, "s001")
		assert.Regexp(t, `(?m)^\+ .*81`, out, name)
		assert.Regexp(t, `(?m)^-.*s002`, out, name)
	}
}

// TestServeByFlags shows the quickstart: one command that needs no file of its own.
func TestServeByFlags(t *testing.T) {
	t.Parallel()
	dir := fixture.Testdata("quickstart")
	tributary := fixture.StartTributaryByFlags(t, "fs://"+dir)
	istiod := tributary.StartIstiod(t)
	istiod.AwaitFolders(t, dir)
}

// TestValidate shows that the objects of the quickstart are valid, and that the message for a bad file has the line.
func TestValidate(t *testing.T) {
	t.Parallel()
	_, code := fixture.Run(t, fixture.TributaryBinary(t), "validate", fixture.Testdata("quickstart"))
	assert.Zero(t, code)

	dir := t.TempDir()
	write(t, dir, "rules.yaml", serviceEntry("good", 80)+"---\n"+serviceEntry("bad", 80000))
	out, code := fixture.Run(t, fixture.TributaryBinary(t), "validate", dir)
	assert.Equal(t, 3, code)
	assert.Regexp(t, `(?m)^\S*rules\.yaml:\d+:\d+: ServiceEntry shop/bad: .*port`, out)
	assert.NotContains(t, out, "shop/good")
}
