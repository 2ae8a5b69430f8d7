package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// Who may only send requests to an Envoy on demand does not cut it off from tributary: with more hosts that nobody has than a stream may
// have names, and very long ones, each is answered, and the Envoy follows what changes, also when it comes back and asks for all of them at
// once.
func TestEnvoyOnDemandIsAskedForHostsThatAreNotThere(t *testing.T) {
	t.Parallel()
	one, two := backend(t, "one"), backend(t, "two")
	port, dir := fixture.FreePort(t), t.TempDir()
	shop := func(name string, backend int) string {
		return service(name, fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: "+
			"{http: %d}}]\n", port, backend))
	}
	write(t, dir, "shop.yaml", shop("shop", one))
	tr := fixture.StartTributaryWith(t, "limits: {namesPerStream: 20000}\nconfigSources:\n- address: fs://"+dir+"\n")
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", tr.XDS, "--metadata", "ON_DEMAND=true"))
	soon := func(cond func() error) { t.Helper(); envoy.WaitFor(t, 20*time.Second, cond) }
	soon(func() error { return answeredAs(t, port, "shop.mesh.internal", "one") })

	const workers, each = 8, 300
	failed := make(chan error, workers*each)
	var asking sync.WaitGroup
	for k := range workers {
		asking.Go(func() {
			for i := range each {
				host := fmt.Sprintf("no-%d-%d.mesh.internal", k, i)
				if i%25 == 0 {
					host = strings.Repeat("a", 50_000) + host
				}
				if err := answeredWith(t, port, host, http.StatusNotFound); err != nil {
					failed <- err
				}
			}
		})
	}
	asking.Wait()
	require.Empty(t, failed)

	write(t, dir, "shop.yaml", shop("shop", two))
	soon(func() error { return answeredAs(t, port, "shop.mesh.internal", "two") })
	write(t, dir, "late.yaml", shop("late", one))
	soon(func() error { return answeredAs(t, port, "late.mesh.internal", "one") })
	tr.Kill()
	write(t, dir, "no.yaml", shop("no-0-1", one)) // it was asked for, and is forgotten
	write(t, dir, "shop.yaml", shop("shop", one))
	tr.Restart(t)
	soon(func() error { return answeredAs(t, port, "shop.mesh.internal", "one") })
	soon(func() error { return answeredAs(t, port, "no-0-1.mesh.internal", "one") })
	require.Zero(t, tr.Metric(t, "tributary_xds_nacks_total", ""))
	require.Zero(t, tr.Metric(t, "tributary_xds_refusals_total", ""))
}
