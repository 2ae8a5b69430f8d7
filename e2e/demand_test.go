package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A real Envoy that asks for it has what it uses and not what exists: the first request to a host waits until its virtual host and cluster
// have come, and works; so does the first connection to a TCP service. What it uses it follows: endpoints, routes, what comes and goes,
// through a restart of tributary.
func TestEnvoyOnDemand(t *testing.T) {
	t.Parallel()
	one, two := backend(t, "one"), backend(t, "two")
	port, other, tcp := fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t)
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
	mesh := startMesh(t, "many.yaml", many(0, one))
	mesh.write(t, "echo.yaml", echoService(other, one, two))
	mesh.write(t, "tcp.yaml", plain(tcp, two))
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS, "--metadata", "ON_DEMAND=true"))
	soon := func(cond func() error) { t.Helper(); envoy.WaitFor(t, 10*time.Second, cond) }
	soon(func() error {
		_, listeners, err := fixture.Get(t.Context(), envoy.URL("/listeners"))
		if err == nil && len(strings.Split(strings.TrimSpace(listeners), "\n")) != 3 {
			err = fmt.Errorf("it listens at %q", listeners)
		}
		return err
	})
	require.Empty(t, clustersOf(t, envoy), "before anybody has asked")

	require.NoError(t, answeredAs(t, port, host(0), "one"))
	require.NoError(t, answeredAs(t, port, fmt.Sprintf("%s:%d", host(1), port), "one"))
	require.NoError(t, answeredAs(t, port, strings.ToUpper(host(2)), "one"))
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
	require.NoError(t, answeredWith(t, port, "nobody.mesh.internal", http.StatusNotFound))
	require.Len(t, clustersOf(t, envoy), 4)
	require.NoError(t, answeredBy(t, tcp, "two"), "by TCP")
	require.Len(t, clustersOf(t, envoy), 5)

	var asked sync.WaitGroup
	failed := make(chan error, 50)
	for i := range 50 {
		asked.Go(func() { failed <- answeredAs(t, port, host(10+i), "one") })
	}
	asked.Wait()
	for range 50 {
		require.NoError(t, <-failed)
	}
	require.Len(t, clustersOf(t, envoy), 55)

	mesh.write(t, "many.yaml", many(0, two)) // endpoints
	soon(func() error { return answeredAs(t, port, host(0), "two") })
	mesh.write(t, "route.yaml", echoRoute("one"))
	soon(func() error { return answeredBy(t, other, "one") })
	mesh.write(t, "route.yaml", echoRoute("two")) // a route to a cluster that it has not yet
	soon(func() error { return answeredBy(t, other, "two") })
	mesh.write(t, "many.yaml", many(1, two))
	soon(func() error { return answeredWith(t, port, host(0), http.StatusNotFound) })
	mesh.write(t, "many.yaml", many(0, one))
	soon(func() error { return answeredAs(t, port, host(0), "one") })

	mesh.write(t, "route.yaml", echoRoute("none")) // a route to nothing: no request waits for a cluster that does not come
	soon(func() error { return answeredWith(t, other, "echo.mesh.internal", http.StatusServiceUnavailable) })
	for range 2 {
		require.Equal(t, "503 Service Unavailable: no healthy upstream", fmt.Sprint(answeredBy(t, other, "two")))
	}
	mesh.write(t, "route.yaml", echoRoute("two"))
	soon(func() error { return answeredBy(t, other, "two") })

	mesh.Kill()
	require.NoError(t, answeredAs(t, port, host(0), "one"), "without tributary")
	mesh.Restart(t)
	soon(func() error { return answeredAs(t, port, host(100), "one") })
	mesh.write(t, "many.yaml", many(0, two))
	soon(func() error { return answeredAs(t, port, host(1), "two") })
	soon(func() error { return answeredAs(t, port, host(100), "two") })

	// Nobody could ask for a host that stands for several: the routes of its port are told whole.
	wild := service("wild", fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: "+
		"{http: %d}}]\n", port, one))
	mesh.write(t, "wild.yaml", strings.Replace(wild, "[wild.mesh.internal]", "['*.wild.mesh.internal']", 1))
	soon(func() error {
		_, routes, err := fixture.Get(t.Context(), envoy.URL("/config_dump?resource=dynamic_route_configs"))
		if err == nil && !strings.Contains(routes, "*.wild.mesh.internal") {
			err = fmt.Errorf("it has no such route")
		}
		return err
	})
	soon(func() error { return answeredAs(t, port, "a.wild.mesh.internal", "one") })
	require.NoError(t, answeredAs(t, port, host(1), "two"))
	require.NoError(t, answeredAs(t, port, host(150), "two"))
	require.NoError(t, answeredBy(t, other, "two"))
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
