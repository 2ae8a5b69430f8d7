package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// Clients of an Envoy on demand cannot cut it off from tributary: requests for more unknown hosts than the limit of a
// stream, and for very long ones, each get a response, and the Envoy follows changes, also after it reconnects and
// subscribes to all of them at once.
func TestEnvoyOnDemand_AnswersForMissingHosts(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	port, dir := fixture.FreePort(t), t.TempDir()
	shop := func(name string, backend int) string {
		return service(name, fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: "+
			"{http: %d}}]\n", port, backend))
	}
	write(t, dir, "shop.yaml", shop("shop", backendOne))
	tr := fixture.StartTributaryWith(t, "limits: {namesPerStream: 20000}\nconfigSources:\n- address: fs://"+dir+"\n")
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", tr.XDS, "--metadata", "ON_DEMAND=true"))
	soon := func(cond func() error) { t.Helper(); envoy.Await(t, cond) }
	soon(answeredAs(t, port, "shop.mesh.internal", "one"))

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
				if err := answeredWith(t, port, host, http.StatusNotFound)(); err != nil {
					failed <- err
				}
			}
		})
	}
	asking.Wait()
	require.Empty(t, failed)

	write(t, dir, "shop.yaml", shop("shop", backendTwo))
	soon(answeredAs(t, port, "shop.mesh.internal", "two"))
	write(t, dir, "late.yaml", shop("late", backendOne))
	soon(answeredAs(t, port, "late.mesh.internal", "one"))
	tr.Kill()
	write(t, dir, "no.yaml", shop("no-0-1", backendOne)) // it was asked for, and is forgotten
	write(t, dir, "shop.yaml", shop("shop", backendOne))
	tr.Restart(t)
	soon(answeredAs(t, port, "shop.mesh.internal", "one"))
	soon(answeredAs(t, port, "no-0-1.mesh.internal", "one"))
	require.Zero(t, tr.Metric(t, "tributary_xds_nacks_total", ""))
	require.Zero(t, tr.Metric(t, "tributary_xds_refusals_total", ""))
}
