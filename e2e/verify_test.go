package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// verified runs `tributary verify` against an istiod, and returns what it finds, as "class kind/namespace/name".
func verified(t *testing.T, tributary *fixture.Tributary, istiod *fixture.Istiod, more ...string) (found []string, code int) {
	t.Helper()
	out, code := fixture.Run(t, append([]string{
		fixture.TributaryBinary(t), "verify", "--istiod", "http://" + istiod.HTTP, "--server", tributary.XDS, "--admin", tributary.Admin, "-o",
		"json",
	}, more...)...)
	var all []struct{ Class, Kind, Namespace, Name, Reason string }
	require.NoError(t, json.Unmarshal([]byte(out), &all), out)
	for _, f := range all {
		require.NotEmpty(t, f.Reason)
		found = append(found, f.Class+" "+f.Kind+"/"+f.Namespace+"/"+f.Name)
	}
	return found, code
}

// verify finds nothing when a real istiod has all, and finds what it dropped, what it has of before, and what it has from elsewhere.
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
	const own = "extra ServiceEntry/shop/own"
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir).With("validation", "warn"))
	gate := fixture.StartGate(t, tributary.XDS)
	istiod := version.NewWith(t, "configSources:\n- address: xds://"+gate.Addr+"\n- address: fs://"+elsewhere+"\n")
	istiod.AwaitSynced(t)

	found, code := verified(t, tributary, istiod)
	require.Equal(t, []string{own}, found)
	require.Zero(t, code, "what the istiod has from elsewhere is none of our business")
	_, code = verified(t, tributary, istiod, "--extra", "--settle", "0s")
	require.Equal(t, 3, code, "unless one says so")

	// istiod acknowledges what its validation refuses, and drops it.
	write(t, dir, "odd.yaml", serviceEntry("odd", 80000))
	istiod.WaitFor(t, 10*time.Second, func() error { return pageNames(t, tributary, "/debug/configz", `"odd"`) })
	found, code = verified(t, tributary, istiod, "--settle", "2s")
	require.Equal(t, []string{"missing ServiceEntry/shop/odd", own}, found)
	require.Equal(t, 3, code)
	require.NoError(t, os.Remove(filepath.Join(dir, "odd.yaml")))

	// What does not come through is stale.
	gate.Shut()
	write(t, dir, "a.yaml", serviceEntry("a", 81))
	istiod.WaitFor(t, 10*time.Second, func() error { return pageNames(t, tributary, "/debug/configz", `"number": 81`) })
	found, code = verified(t, tributary, istiod, "--settle", "1s")
	require.Equal(t, []string{"stale ServiceEntry/shop/a", own}, found)
	require.Equal(t, 3, code)
	gate.Open()
	found, code = verified(t, tributary, istiod, "--settle", "60s")
	require.Equal(t, []string{own}, found)
	require.Zero(t, code)
}
