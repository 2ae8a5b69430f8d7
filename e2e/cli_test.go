package e2e

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestGet shows that `tributary get` prints what is served, by tributary and by an istiod alike, as objects that a file
// could hold.
func TestGet(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{
		"se": "ServiceEntry", "vs": "VirtualService", "dr": "DestinationRule",
		"gw": "Gateway", "we": "WorkloadEntry", "wg": "WorkloadGroup",
	}
	dir, err := filepath.Abs(filepath.Join("testdata", "kinds"))
	require.NoError(t, err)
	tributary, istiod := serve(t, dir)
	all := fixture.ReadObjects(t, dir)
	for server, addr := range map[string]string{"tributary": tributary.XDS, "istiod": istiod.GRPC} {
		for short, kind := range kinds {
			t.Run(server+"/"+short, func(t *testing.T) {
				want := maps.Clone(all)
				maps.DeleteFunc(want, func(k fixture.Key, _ *fixture.Object) bool { return k.Kind != kind })
				out, code := fixture.Run(t, fixture.TributaryBinary(t), "get", short, "-A", "-o", "yaml", "--server", addr)
				require.Zero(t, code)
				require.NoError(t, want.Diff(fixture.ParseObjects(t, out)), "of:\n%s", out)
			})
		}
	}
}

// TestServeByFlags shows the quickstart: one command that needs no file of its own.
func TestServeByFlags(t *testing.T) {
	t.Parallel()
	dir := fixture.Testdata("quickstart")
	tributary := fixture.StartTributaryByFlags(t, "fs://"+dir)
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	istiod.AwaitConfigs(t, fixture.ReadObjects(t, dir))
}

// TestValidate shows that what is served by the quickstart is valid, and that a bad file is named with the line.
func TestValidate(t *testing.T) {
	t.Parallel()
	_, code := fixture.Run(t, fixture.TributaryBinary(t), "validate", fixture.Testdata("quickstart"))
	assert.Zero(t, code)

	dir := t.TempDir()
	write(t, dir, "rules.yaml", serviceEntry("good", 80)+"---\n"+serviceEntry("bad", 80000))
	out, code := fixture.Run(t, fixture.TributaryBinary(t), "validate", dir)
	assert.Equal(t, 3, code)
	assert.Regexp(t, `(?m)^\S*rules\.yaml:\d+: ServiceEntry shop/bad: .*port`, out)
	assert.NotContains(t, out, "shop/good")
}
