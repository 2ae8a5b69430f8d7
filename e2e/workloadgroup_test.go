package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tributary/e2e/fixture"
)

// machine is a workload with a probe on a port of its own.
type machine struct {
	port, probed int
	dead         atomic.Bool
	failed       atomic.Int64           // probes
	lastProbe    atomic.Pointer[string] // by the last probe: host, path and header
}

func startMachine(t *testing.T, name string, secure bool) *machine {
	t.Helper()
	m := &machine{port: backend(t, name)}
	probed := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probe := r.Host + r.URL.Path + " " + r.Header.Get("X-Probe")
		m.lastProbe.Store(&probe)
		if m.dead.Load() {
			m.failed.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	if secure {
		probed.StartTLS()
	} else {
		probed.Start()
	}
	t.Cleanup(probed.Close)
	m.probed = probed.Listener.Addr().(*net.TCPAddr).Port
	return m
}

// member is a WorkloadEntry.
func member(name string, port int, labels string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: %s, namespace: default}
spec: {address: 127.0.0.1, ports: {http: %d}, labels: {app: echo, %s}}
`, name, port, labels)
}

func group(name, labels, probe string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: %s, namespace: default}
spec: {template: {labels: {%s}}, probe: %s}
`, name, labels, probe)
}

// answers returns how often each backend answers.
func answers(t *testing.T, port int) (map[string]int, error) {
	t.Helper()
	counts := make(map[string]int)
	for range 40 {
		name, err := requestAs(t, port, "echo.mesh.internal")
		if err != nil {
			return nil, err
		}
		counts[name]++
	}
	return counts, nil
}

func answeredByEach(t *testing.T, port int, names ...string) func() error {
	return func() error {
		counts, err := answers(t, port)
		if err != nil {
			return err
		}
		for _, name := range names {
			if counts[name] == 0 {
				return fmt.Errorf("%s answers no request: %v", name, counts)
			}
		}
		if len(counts) != len(names) {
			return fmt.Errorf("want answers of %v only: %v", names, counts)
		}
		return nil
	}
}

// A workload that does not answer its probe gets no requests from a real Envoy, until it answers again. Workloads of no
// group, and of a group with another kind of probe, are not checked.
func TestWorkloadGroupOnTributary(t *testing.T) {
	t.Parallel()
	port := fixture.FreePort(t)
	machineOne, machineTwo := startMachine(t, "one", false), startMachine(t, "two", false)
	service := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: echo}}
`, port) + member("one", machineOne.port, "machine: one")
	mesh := startMesh(t, "echo.yaml", service)
	mesh.write(t, "two.yaml", member("two", machineTwo.port, "machine: two"))
	const probe = "{periodSeconds: 1, failureThreshold: %d, httpGet: {port: %d, path: ready/%[1]d, " +
		"httpHeaders: [{name: X-Probe, value: 100%%}]}}"
	groups := func(failures int) string {
		return group("one", "machine: one", fmt.Sprintf(probe, failures, machineOne.probed)) +
			group("two", "machine: two", fmt.Sprintf(probe, failures, machineTwo.probed))
	}
	mesh.write(t, "groups.yaml", groups(2))
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS))
	bothAnswer := answeredByEach(t, port, "one", "two")
	envoy.Await(t, bothAnswer)
	require.Equal(t, fmt.Sprintf("127.0.0.1:%d/ready/2 100%%", machineTwo.probed), *machineTwo.lastProbe.Load())

	for range 2 {
		machineTwo.dead.Store(true)
		envoy.Await(t, answeredByEach(t, port, "one"))
		_, metrics, err := fixture.Get(t.Context(), envoy.URL("/stats/prometheus"))
		require.NoError(t, err)
		require.Contains(t, metrics, fmt.Sprintf("envoy_cluster_membership_healthy{cluster_name=\"outbound|%d||echo.mesh.internal\"} 1\n", port))
		require.Contains(t, metrics, "envoy_cluster_health_check_failure{")
		machineTwo.dead.Store(false)
		envoy.Await(t, bothAnswer)
	}

	// None is left: requests are refused, and not sent to dead workloads.
	machineOne.dead.Store(true)
	machineTwo.dead.Store(true)
	envoy.Await(t, answeredWith(t, port, "echo.mesh.internal", http.StatusServiceUnavailable))
	machineOne.dead.Store(false)
	machineTwo.dead.Store(false)
	envoy.Await(t, bothAnswer)

	// A workload that has failed less often than failureThreshold says stays.
	mesh.write(t, "groups.yaml", groups(1000))
	envoy.Await(t, func() error {
		if lastProbe := *machineTwo.lastProbe.Load(); !strings.Contains(lastProbe, "/ready/1000") {
			return errors.New(lastProbe)
		}
		return bothAnswer()
	})
	machineTwo.dead.Store(true)
	before := machineTwo.failed.Load()
	envoy.Await(t, func() error {
		if machineTwo.failed.Load() < before+3 {
			return errors.New("not probed yet")
		}
		return nil
	})
	require.NoError(t, bothAnswer())
	machineTwo.dead.Store(false)
	mesh.write(t, "groups.yaml", groups(2))

	// Workloads of a group with another probe, and of none, are not checked.
	machineThree := startMachine(t, "three", false)
	mesh.write(t, "more.yaml", member("three", machineThree.port, "machine: three")+
		group("three", "machine: three", fmt.Sprintf(`{tcpSocket: {port: %d}}`, fixture.FreePort(t))))
	envoy.Await(t, answeredByEach(t, port, "one", "two", "three"))
	machineTwo.dead.Store(true)
	envoy.Await(t, answeredByEach(t, port, "one", "three"))
	machineTwo.dead.Store(false)
	envoy.Await(t, answeredByEach(t, port, "one", "two", "three"))

	// A removed endpoint gets no request, though it answers. It comes back unchecked.
	require.NoError(t, os.Remove(filepath.Join(mesh.dir, "two.yaml")))
	envoy.Await(t, answeredByEach(t, port, "one", "three"))
	machineTwo.dead.Store(true)
	mesh.write(t, "two.yaml", member("two", machineTwo.port, "machine: two"))
	mesh.write(t, "groups.yaml", group("one", "machine: one", fmt.Sprintf(probe, 1, machineOne.probed)))
	envoy.Await(t, answeredByEach(t, port, "one", "two", "three"))
	mesh.rejectedNothing(t)
}

// A real Envoy accepts each sort of probe, on clusters of each sort, and asks as it says.
func TestProbesOnTributary(t *testing.T) {
	t.Parallel()
	plain, secure := startMachine(t, "plain", false), startMachine(t, "secure", true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var connections atomic.Int64
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	tcp := listener.Addr().(*net.TCPAddr).Port
	called, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	calls, states := grpc.NewServer(), health.NewServer()
	states.SetServingStatus("up", healthpb.HealthCheckResponse_SERVING)
	states.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(calls, states)
	go func() { _ = calls.Serve(called) }()
	t.Cleanup(calls.Stop)
	grpcPort := called.Addr().(*net.TCPAddr).Port
	var mesh, rules strings.Builder
	closed := fixture.FreePort(t)
	probes := map[string]struct{ probe, dead string }{
		"http": {
			fmt.Sprintf("{periodSeconds: 1, httpGet: {port: %d}}", plain.probed),
			fmt.Sprintf("{periodSeconds: 1, httpGet: {port: %d, scheme: HTTPS}}", plain.probed),
		},
		"https": {
			fmt.Sprintf("{periodSeconds: 1, httpGet: {port: %d, scheme: HTTPS}}", secure.probed),
			fmt.Sprintf("{periodSeconds: 1, httpGet: {port: %d}}", secure.probed),
		},
		"tcp": {
			fmt.Sprintf("{periodSeconds: 1, tcpSocket: {port: %d}}", tcp),
			fmt.Sprintf("{periodSeconds: 1, tcpSocket: {port: %d}}", closed),
		},
		"grpc": {
			fmt.Sprintf("{periodSeconds: 1, grpc: {port: %d, service: up}}", grpcPort),
			fmt.Sprintf("{periodSeconds: 1, grpc: {port: %d, service: down}}", grpcPort),
		},
	}
	front := make(map[string]int)
	for _, resolution := range []string{"STATIC", "DNS", "DNS_ROUND_ROBIN"} {
		for _, tls := range []string{"DISABLE", "SIMPLE"} {
			for probe, config := range probes {
				for alive, text := range map[bool]string{true: config.probe, false: config.dead} {
					name := strings.ToLower(fmt.Sprintf("%s-%s-%s-%t", strings.ReplaceAll(resolution, "_", "-"), tls, probe, alive))
					front[name] = fixture.FreePort(t)
					fmt.Fprintf(&mesh, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: default}
spec:
  hosts: [%[1]s.mesh.internal]
  resolution: %[2]s
  ports: [{number: %[3]d, name: http, protocol: %[5]s}]
  workloadSelector: {labels: {app: %[1]s}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: %[1]s, namespace: default}
spec: {address: 127.0.0.1, ports: {http: %[4]d}, labels: {app: %[1]s}}
`, name, resolution, front[name], plain.port, map[bool]string{true: "GRPC", false: "HTTP"}[probe == "grpc"])
					mesh.WriteString(group(name, "app: "+name, text))
					fmt.Fprintf(&rules, `---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: default}
spec: {host: %[1]s.mesh.internal, trafficPolicy: {tls: {mode: %[2]s}}}
`, name, tls)
				}
			}
		}
	}
	dir := t.TempDir()
	write(t, dir, "all.yaml", mesh.String()+rules.String())
	lenient := fixture.Files("mesh", dir)
	lenient.Options = map[string]any{"validation": "warn"} // Istio's validation knows no grpc
	relay := fixture.StartTributary(t, lenient)
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", relay.XDS))
	envoy.Await(t, func() error {
		status, text, err := fixture.Get(t.Context(), envoy.URL("/clusters"))
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %w", status, err)
		}
		for name, port := range front {
			cluster := fmt.Sprintf("outbound|%d||%s.mesh.internal::127.0.0.1:", port, name)
			index := strings.Index(text, cluster)
			if index < 0 {
				return errors.New("no endpoint of " + name)
			}
			_, rest, _ := strings.Cut(text[index:], "::health_flags::")
			flags, _, _ := strings.Cut(rest, "\n")
			if healthy := flags == "healthy"; healthy != strings.HasSuffix(name, "true") {
				return fmt.Errorf("%s: %s", name, flags)
			}
		}
		return nil
	})
	require.Positive(t, connections.Load())
	require.Zero(t, relay.Metric(t, "tributary_xds_nacks_total", ""), "Envoy rejected something")
}

// Probes that come, change and go fail no request.
func TestProbesComeUnderLoadOnTributary(t *testing.T) {
	t.Parallel()
	port := fixture.FreePort(t)
	machineOne, machineTwo := startMachine(t, "one", false), startMachine(t, "two", false)
	mesh := startMesh(t, "echo.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  {hosts: [echo.mesh.internal], resolution: STATIC, ports: [{number: %d, name: http, protocol: HTTP}],
    workloadSelector: {labels: {app: echo}}}
`, port)+member("one", machineOne.port, "machine: one")+member("two", machineTwo.port, "machine: two"))
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS))
	envoy.Await(t, answeredByEach(t, port, "one", "two"))

	var requests, failed atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if _, err := requestAs(t, port, "echo.mesh.internal"); err != nil { //nolint:testifylint // the assertion is on a constant
				failed.Add(1)
			}
			requests.Add(1)
		}
	}()
	for i, probed := range []int{machineOne.probed, machineTwo.probed, machineOne.probed} {
		path := fmt.Sprintf("/%d", i/2) // first, another port; then, another check
		target := []*machine{machineOne, machineTwo, machineOne}[i]
		target.lastProbe.Store(new(string))
		mesh.write(t, "group.yaml", group("all", "app: echo", fmt.Sprintf("{periodSeconds: 1, httpGet: {port: %d, path: %s}}", probed, path)))
		envoy.Await(t, func() error {
			if got := *target.lastProbe.Load(); !strings.Contains(got, path+" ") {
				return errors.New("not probed yet: " + got)
			}
			return answeredByEach(t, port, "one", "two")()
		})
	}
	require.NoError(t, os.Remove(filepath.Join(mesh.dir, "group.yaml")))
	envoy.Await(t, func() error {
		_, text, err := fixture.Get(t.Context(), envoy.URL("/config_dump?resource=dynamic_active_clusters"))
		if err == nil && strings.Contains(text, "health_checks") {
			err = errors.New("still checked")
		}
		return err
	})
	close(stop)
	<-stopped
	t.Logf("%d requests, %d failed", requests.Load(), failed.Load())
	require.Greater(t, requests.Load(), int64(100))
	require.Zero(t, failed.Load())
}
