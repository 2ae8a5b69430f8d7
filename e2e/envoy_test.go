package e2e

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// TestEnvoyBehindIstiod is the proof beyond istiod's own word: a real Envoy gets the quickstart's services from that
// istiod, and a request goes where tributary's files send it, also after they changed.
func TestEnvoyBehindIstiod(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	port := fixture.FreePort(t)
	dir := t.TempDir()
	write(t, dir, "echo.yaml", echoService(port, backendOne, backendTwo))
	write(t, dir, "route.yaml", echoRoute("one"))
	quickstart := fixture.Testdata("quickstart")

	tributary := fixture.StartTributary(t, fixture.Files("rules", dir), fixture.Files("quickstart", quickstart))
	istiod := tributary.StartIstiod(t)
	envoy := fixture.StartEnvoy(t, istiod.GRPC)

	envoy.Await(t, holds(t, envoy, fixture.ReadObjects(t, dir, quickstart)))

	envoy.Await(t, answeredBy(t, port, "one"))
	write(t, dir, "route.yaml", echoRoute("two"))
	envoy.Await(t, answeredBy(t, port, "two"))
}

// holds says whether Envoy has a cluster with its endpoints for every port of every ServiceEntry, and a route for every
// VirtualService of one of their hosts.
func holds(t *testing.T, envoy *fixture.Envoy, objects fixture.Objects) func() error {
	return func() error {
		_, clusters, err := fixture.Get(t.Context(), envoy.URL("/clusters"))
		if err != nil {
			return err
		}
		_, routes, err := fixture.Get(t.Context(), envoy.URL("/config_dump?resource=dynamic_route_configs"))
		if err != nil {
			return err
		}

		hosts := map[string]bool{}
		for key, object := range objects {
			service, ok := object.Message().(*networking.ServiceEntry)
			if !ok {
				continue
			}
			endpoints := endpointsOf(key.Namespace, service, objects)
			for _, host := range service.GetHosts() {
				hosts[host] = true
				for _, port := range service.GetPorts() {
					cluster := fmt.Sprintf("outbound|%d||%s::", port.GetNumber(), host)
					if !strings.Contains(clusters, cluster) {
						return fmt.Errorf("no cluster %s for %s in:\n%s", cluster, key, clusters)
					}
					for _, endpoint := range endpoints {
						number := cmp.Or(port.GetTargetPort(), port.GetNumber())
						if n, ok := endpoint.GetPorts()[port.GetName()]; ok {
							number = n
						}
						if member := fmt.Sprintf("%s%s:%d::", cluster, endpoint.GetAddress(), number); !strings.Contains(clusters, member) {
							return fmt.Errorf("no endpoint %s for %s in:\n%s", member, key, clusters)
						}
					}
				}
			}
		}
		for key, object := range objects {
			rule, ok := object.Message().(*networking.VirtualService)
			if !ok {
				continue
			}
			for _, host := range rule.GetHosts() {
				if hosts[host] && !strings.Contains(routes, fmt.Sprintf("%q", host)) {
					return fmt.Errorf("no route for %s of %s in:\n%s", host, key, routes)
				}
			}
		}
		return nil
	}
}

// endpointsOf are a service's own endpoints, or the WorkloadEntries that it selects.
func endpointsOf(namespace string, service *networking.ServiceEntry, objects fixture.Objects) []*networking.WorkloadEntry {
	if service.GetWorkloadSelector() == nil {
		return service.GetEndpoints()
	}
	var selected []*networking.WorkloadEntry
	for key, object := range objects {
		workload, ok := object.Message().(*networking.WorkloadEntry)
		if !ok || key.Namespace != namespace {
			continue
		}
		labels := maps.Clone(workload.GetLabels())
		maps.Copy(labels, service.GetWorkloadSelector().GetLabels())
		if maps.Equal(labels, workload.GetLabels()) {
			selected = append(selected, workload)
		}
	}
	return selected
}

// backend is an HTTP server that answers with its name.
func backend(t *testing.T, name string) (port int) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	_, err := fmt.Sscanf(s.URL, "http://127.0.0.1:%d", &port)
	require.NoError(t, err)
	return port
}

// answeredBy asks the service through Envoy and says whether that backend answered.
func answeredBy(t *testing.T, port int, name string) func() error {
	return answeredAs(t, port, "echo.mesh.internal", name)
}

func answeredAs(t *testing.T, port int, host, name string) func() error {
	return func() error {
		answer, err := requestAs(t, port, host)
		if err == nil && answer != name {
			err = fmt.Errorf("%q answered, want %q", answer, name)
		}
		return err
	}
}

// echoService is a service on a port, with a backend of each version on a loopback port of its own.
func echoService(port, backendOne, backendTwo int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints:
  - {address: 127.0.0.1, ports: {http: %d}, labels: {version: one}}
  - {address: 127.0.0.1, ports: {http: %d}, labels: {version: two}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec:
  host: echo.mesh.internal
  subsets:
  - {name: one, labels: {version: one}}
  - {name: two, labels: {version: two}}
`, port, backendOne, backendTwo)
}

// echoRoute sends all of the service's requests to one version.
func echoRoute(version string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  http: [{route: [{destination: {host: echo.mesh.internal, subset: %s}}]}]
`, version)
}
