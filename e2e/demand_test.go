package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A real Envoy on demand has the resources that it uses, not all of them: the first request to a host waits for its
// virtual host and cluster, and works; so does the first connection to a TCP service. It follows changes of the
// resources in use: endpoints, routes, new and deleted hosts, through a restart of tributary.
func TestEnvoyOnDemand(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	port, echoPort, tcp := fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t)
	const services = 200
	host := func(i int) string { return fmt.Sprintf("s%d.mesh.internal", i) }
	many := func(first, backend int) string {
		var b strings.Builder
		for i := first; i < services; i++ {
			b.WriteString(service(fmt.Sprintf("s%d", i), fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: "+
				"[{address: 127.0.0.1, ports: {http: %d}}]\n---\n", port, backend)))
		}
		return b.String()
	}
	mesh := startMesh(t, "many.yaml", many(0, backendOne))
	mesh.write(t, "echo.yaml", echoService(echoPort, backendOne, backendTwo))
	mesh.write(t, "tcp.yaml", plain(tcp, backendTwo))
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS, "--metadata", "ON_DEMAND=true"))
	soon := func(cond func() error) { t.Helper(); envoy.Await(t, cond) }
	soon(func() error {
		_, listeners, err := fixture.Get(t.Context(), envoy.URL("/listeners"))
		if err == nil && len(strings.Split(strings.TrimSpace(listeners), "\n")) != 3 {
			err = fmt.Errorf("it listens at %q", listeners)
		}
		return err
	})
	require.Empty(t, clustersOf(t, envoy), "before the first request")

	require.NoError(t, answeredAs(t, port, host(0), "one")())
	require.NoError(t, answeredAs(t, port, fmt.Sprintf("%s:%d", host(1), port), "one")())
	require.NoError(t, answeredAs(t, port, strings.ToUpper(host(2)), "one")())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+fixture.Loopback(port),
		strings.NewReader(strings.Repeat("x", 100_000)))
	require.NoError(t, err)
	req.Host = host(3)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "one", string(body), "to a request with a body")
	require.NoError(t, answeredWith(t, port, "nobody.mesh.internal", http.StatusNotFound)())
	require.Len(t, clustersOf(t, envoy), 4)
	require.NoError(t, answeredBy(t, tcp, "two")(), "by TCP")
	require.Len(t, clustersOf(t, envoy), 5)

	var requests sync.WaitGroup
	failed := make(chan error, 50)
	for i := range 50 {
		requests.Go(func() { failed <- answeredAs(t, port, host(10+i), "one")() })
	}
	requests.Wait()
	for range 50 {
		require.NoError(t, <-failed)
	}
	require.Len(t, clustersOf(t, envoy), 55)

	mesh.write(t, "many.yaml", many(0, backendTwo)) // endpoints
	soon(answeredAs(t, port, host(0), "two"))
	mesh.write(t, "route.yaml", echoRoute("one"))
	soon(answeredBy(t, echoPort, "one"))
	mesh.write(t, "route.yaml", echoRoute("two")) // a route to a cluster that the Envoy does not have yet
	soon(answeredBy(t, echoPort, "two"))
	mesh.write(t, "many.yaml", many(1, backendTwo))
	soon(answeredWith(t, port, host(0), http.StatusNotFound))
	mesh.write(t, "many.yaml", many(0, backendOne))
	soon(answeredAs(t, port, host(0), "one"))

	mesh.write(t, "route.yaml", echoRoute("none")) // a route to a missing subset: no request waits for a cluster that does not come
	soon(answeredWith(t, echoPort, "echo.mesh.internal", http.StatusServiceUnavailable))
	for range 2 {
		require.Equal(t, "503 Service Unavailable: no healthy upstream", fmt.Sprint(answeredBy(t, echoPort, "two")()))
	}
	mesh.write(t, "route.yaml", echoRoute("two"))
	soon(answeredBy(t, echoPort, "two"))

	mesh.Kill()
	require.NoError(t, answeredAs(t, port, host(0), "one")(), "without tributary")
	mesh.Restart(t)
	soon(answeredAs(t, port, host(100), "one"))
	mesh.write(t, "many.yaml", many(0, backendTwo))
	soon(answeredAs(t, port, host(1), "two"))
	soon(answeredAs(t, port, host(100), "two"))

	// No client can subscribe to a wildcard host: Envoys get all routes of its port.
	wild := service("wild", fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: "+
		"{http: %d}}]\n", port, backendOne))
	mesh.write(t, "wild.yaml", strings.Replace(wild, "[wild.mesh.internal]", "['*.wild.mesh.internal']", 1))
	soon(func() error {
		_, routes, err := fixture.Get(t.Context(), envoy.URL("/config_dump?resource=dynamic_route_configs"))
		if err == nil && !strings.Contains(routes, "*.wild.mesh.internal") {
			err = fmt.Errorf("it has no such route")
		}
		return err
	})
	soon(answeredAs(t, port, "a.wild.mesh.internal", "one"))
	require.NoError(t, answeredAs(t, port, host(1), "two")())
	require.NoError(t, answeredAs(t, port, host(150), "two")())
	require.NoError(t, answeredBy(t, echoPort, "two")())
	mesh.rejectedNothing(t)
}

// clustersOf are the names of the clusters that an Envoy has, but for those of its bootstrap.
func clustersOf(t *testing.T, envoy *fixture.Envoy) (names []string) {
	t.Helper()
	_, page, err := fixture.Get(t.Context(), envoy.URL("/clusters"))
	require.NoError(t, err)
	for line := range strings.Lines(page) {
		if name, _, ok := strings.Cut(line, "::observability_name::"); ok && name != "xds" {
			names = append(names, name)
		}
	}
	return names
}
