package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// verified runs `tributary verify` against an istiod, and returns its findings, as "class kind/namespace/name".
func verified(t *testing.T, tributary *fixture.Tributary, istiod *fixture.Istiod, args ...string) (findings []string, code int) {
	t.Helper()
	out, code := fixture.Run(t, append([]string{
		fixture.TributaryBinary(t), "verify", "--istiod", "http://" + istiod.HTTP, "--server", tributary.XDS, "--admin", tributary.Admin, "-o",
		"json",
	}, args...)...)
	var entries []struct{ Class, Kind, Namespace, Name, Reason string }
	require.NoError(t, json.Unmarshal([]byte(out), &entries), out)
	for _, f := range entries {
		require.NotEmpty(t, f.Reason)
		findings = append(findings, f.Class+" "+f.Kind+"/"+f.Namespace+"/"+f.Name)
	}
	return findings, code
}

// verify has no findings when a real istiod has all objects, and finds objects that it dropped, outdated objects, and
// objects from elsewhere.
func TestVerify(t *testing.T) {
	t.Parallel()
	fixture.EachIstiod(t, verifies)
}

func verifies(t *testing.T, version fixture.IstiodVersion) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	kinds, err := os.ReadDir(filepath.Join("testdata", "kinds"))
	require.NoError(t, err)
	for _, f := range kinds {
		text, err := os.ReadFile(filepath.Join("testdata", "kinds", f.Name()))
		require.NoError(t, err)
		write(t, dir, f.Name(), string(text))
	}
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	write(t, elsewhere, "own.yaml", serviceEntry("own", 80))
	const extraFinding = "extra ServiceEntry/shop/own"
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir).With("validation", "warn"))
	gate := fixture.StartGate(t, tributary.XDS)
	istiod := version.NewWith(t, "configSources:\n- address: xds://"+gate.Addr+"\n- address: fs://"+elsewhere+"\n")
	istiod.AwaitSynced(t)

	findings, code := verified(t, tributary, istiod)
	require.Equal(t, []string{extraFinding}, findings)
	require.Zero(t, code, "istiod's objects from elsewhere do not count")
	_, code = verified(t, tributary, istiod, "--extra", "--settle", "0s")
	require.Equal(t, 3, code, "unless one says so")

	// istiod acknowledges objects that its validation refuses, and drops them.
	write(t, dir, "odd.yaml", serviceEntry("odd", 80000))
	istiod.Await(t, pageNames(t, tributary, "/debug/configz", `"odd"`))
	findings, code = verified(t, tributary, istiod, "--settle", "2s")
	require.Equal(t, []string{"missing ServiceEntry/shop/odd", extraFinding}, findings)
	require.Equal(t, 3, code)
	require.NoError(t, os.Remove(filepath.Join(dir, "odd.yaml")))

	// Changes that do not come through are stale.
	gate.Shut()
	write(t, dir, "a.yaml", serviceEntry("a", 81))
	istiod.Await(t, pageNames(t, tributary, "/debug/configz", `"number": 81`))
	findings, code = verified(t, tributary, istiod, "--settle", "1s")
	require.Equal(t, []string{"stale ServiceEntry/shop/a", extraFinding}, findings)
	require.Equal(t, 3, code)
	gate.Open()
	findings, code = verified(t, tributary, istiod, "--settle", "60s")
	require.Equal(t, []string{extraFinding}, findings)
	require.Zero(t, code)
}
