package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/e2e/fixture"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// workloadAddress is where the workload of these tests is.
const workloadAddress = "10.9.8.7"

const inboundService = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: default}
spec:
  hosts: [%[1]s.mesh.internal]
  ports: [{number: %d, name: p, protocol: %s, targetPort: %d}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints: [{address: %[5]s}]
---
`

// Connections to a workload are redirected to its Envoy, which hands them on: those to ports of its services, as they
// come and go while it runs, and those to other ports. Each request to a port of HTTP shows that it came through the
// Envoy.
func TestInboundOnTributary(t *testing.T) {
	if os.Getenv("E2E_INTERCEPTED") == "" {
		t.Parallel()
		inNetworkOfItsOwn(t)
		return
	}
	redirectInbound(t)
	programOne, programTwo, tcp, programOther := program(t, "one"), program(t, "two"), program(t, "tcp"), program(t, "other")
	services := fmt.Sprintf(inboundService, "one", 80, "HTTP", programOne, workloadAddress) +
		fmt.Sprintf(inboundService, "tcp", 90, "TCP", tcp, workloadAddress)
	mesh := startMesh(t, "mesh.yaml", services+`apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: istio}
spec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}
`)
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS, "--metadata", "INTERCEPTION_MODE=REDIRECT",
		"--node-id", "sidecar~"+workloadAddress+"~vm.default~default.svc.cluster.local"))
	const served, passed = "inbound_0.0.0.0_%d", "InboundPassthroughCluster"
	envoy.Await(t, cameThrough(t, envoy, programOne, "one", fmt.Sprintf(served, programOne)))
	require.NoError(t, cameThrough(t, envoy, programOther, "other", passed)(), "outboundTrafficPolicy does not apply to inbound requests")
	name, err := requestAt(t, atWorkload(tcp), "")
	require.NoError(t, err)
	require.Equal(t, "tcp", name)
	require.NoError(t, cameThrough(t, envoy, programTwo, "two", passed)())
	_, err = requestAt(t, "http://127.0.0.1:15006", "")
	require.Error(t, err, "a connection to the port itself would loop")

	stop := keepRequesting(t, atWorkload(programOne), "one")
	mesh.write(t, "two.yaml", fmt.Sprintf(inboundService, "two", 81, "HTTP", programTwo, workloadAddress))
	envoy.Await(t, cameThrough(t, envoy, programTwo, "two", fmt.Sprintf(served, programTwo)))
	require.NoError(t, os.Remove(mesh.dir+"/two.yaml"))
	envoy.Await(t, cameThrough(t, envoy, programTwo, "two", passed))
	require.NotZero(t, stop(), "a port that stays is never without its listener")

	// The ingress of a Sidecar is instead of the ports of services.
	mesh.write(t, "sidecar.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: default}
spec:
  ingress:
  - {port: {number: 9080, protocol: HTTP, name: a}, defaultEndpoint: "0.0.0.0:%d"}
  - {port: {number: 9081, protocol: HTTP, name: b}, captureMode: NONE, bind: 127.0.0.1, defaultEndpoint: "0.0.0.0:%d"}
`, programTwo, programOther))
	envoy.Await(t, cameThrough(t, envoy, 9080, "two", fmt.Sprintf(served, 9080)))
	name, err = requestAt(t, "http://127.0.0.1:9081", "")
	require.NoError(t, err)
	require.Equal(t, "other", name)
	mesh.rejectedNothing(t)
}

// Without redirection, a sidecar has the ingress listeners of a Sidecar, which may come and go.
func TestIngressOfASidecarOnTributary(t *testing.T) {
	t.Parallel()
	backendPort := backend(t, "one")
	mesh := startMesh(t, "mesh.yaml", fmt.Sprintf(inboundService, "one", 80, "HTTP", backendPort, "127.0.0.1"))
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS, "--node-id",
		"sidecar~127.0.0.1~vm.default~default.svc.cluster.local"))
	port := fixture.FreePort(t)
	mesh.write(t, "sidecar.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: default}
spec:
  ingress: [{port: {number: %d, protocol: HTTP, name: a}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:%d"}]
`, port, backendPort))
	url := "http://" + fixture.Loopback(port)
	envoy.Await(t, func() error {
		name, err := requestAt(t, url, "")
		if err == nil && name != "one" {
			err = fmt.Errorf("answered by %s", name)
		}
		return err
	})
	require.NoError(t, os.Remove(mesh.dir+"/sidecar.yaml"))
	envoy.Await(t, func() error { return checkClosed(t, port) })
	mesh.rejectedNothing(t)
}

// An Envoy without an identity refuses connections that require mutual TLS. This test shows an Envoy's behaviour with
// such a listener.
func TestStrictRefusesWithoutAnIdentity(t *testing.T) {
	t.Parallel()
	backendPort := backend(t, "one")
	for mode, answered := range map[model.MutualTLS]bool{model.Permissive: true, model.Disabled: true, model.Strict: false} {
		port := uint32(fixture.FreePort(t)) //nolint:gosec // a port
		translated := translate.View(&model.View{Security: &model.Security{Mutual: mode}, Inbound: &model.Inbound{Ports: []model.WorkloadPort{{
			ServicePort: model.ServicePort{Target: port, Protocol: "http"}, Address: model.Localhost, Bound: true,
			Endpoint: fixture.Loopback(backendPort),
		}}}}, nil)
		static := &bootstrapv3.Bootstrap_StaticResources{Clusters: translate.SidecarClusters()}
		for _, e := range translated.Clusters {
			c := &cluster.Cluster{}
			unpack(t, e.Any, c)
			static.Clusters = append(static.Clusters, c)
		}
		for _, e := range translated.Listeners {
			l := &listener.Listener{}
			unpack(t, e.Any, l)
			static.Listeners = append(static.Listeners, l)
		}
		resources, err := protojson.Marshal(static)
		require.NoError(t, err)
		envoy := fixture.StartEnvoyWith(t, "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}\nstatic_resources: "+
			string(resources)+"\n")
		envoy.Await(t, func() error { return checkListening(t, int(port)) })
		name, err := requestAt(t, "http://"+fixture.Loopback(int(port)), "")
		if !answered {
			require.Error(t, err, "answered by %s", name)
			require.NotContains(t, err.Error(), "refused", "the listener is there, and closes new connections")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "one", name)
	}
}

func unpack(t *testing.T, body []byte, m proto.Message) {
	t.Helper()
	var packed anypb.Any
	require.NoError(t, proto.Unmarshal(body, &packed))
	require.NoError(t, packed.UnmarshalTo(m))
}

func checkListening(t *testing.T, port int) error {
	t.Helper()
	if checkClosed(t, port) == nil {
		return fmt.Errorf("no program listens on %d", port)
	}
	return nil
}

// program starts a program at the address of the workload that says its name, and returns its port.
func program(t *testing.T, name string) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", workloadAddress+":0")
	require.NoError(t, err)
	s := &httptest.Server{Listener: l, Config: &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }),
		ReadHeaderTimeout: time.Minute,
	}}
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().(*net.TCPAddr).Port
}

func atWorkload(port int) string { return fmt.Sprintf("http://%s:%d", workloadAddress, port) }

// cameThrough makes a request to a port of the workload, and says whether it was answered by a program and counted by
// the Envoy under some name.
func cameThrough(t *testing.T, envoy *fixture.Envoy, port int, program, stats string) func() error {
	return func() error {
		name := "http." + stats + ";.downstream_rq_2xx"
		before := counted(t, envoy, name)
		got, err := requestAt(t, atWorkload(port), "any.internal", "Connection", "close")
		if err != nil {
			return err
		}
		if got != program {
			return fmt.Errorf("answered by %s, and not by %s", got, program)
		}
		if counted(t, envoy, name) == before {
			return fmt.Errorf("not counted as %s", stats)
		}
		return nil
	}
}

// counted returns the Envoy's value of a counter.
func counted(t *testing.T, envoy *fixture.Envoy, name string) string {
	t.Helper()
	text, err := requestAt(t, envoy.URL("/stats?filter="+"%5E"+name+"%24"), "")
	require.NoError(t, err)
	return text
}

// keepRequesting makes requests until it is stopped, and then says how many were answered. One that is not fails the
// test.
func keepRequesting(t *testing.T, url, program string) (stop func() int) {
	t.Helper()
	stopped, ended := make(chan struct{}), make(chan struct{})
	n, failed := 0, error(nil)
	go func() {
		defer close(ended)
		for failed == nil {
			select {
			case <-stopped:
				return
			default:
			}
			got, err := requestAt(t, url, "", "Connection", "close")
			if err == nil && got != program {
				err = fmt.Errorf("answered by %s", got)
			}
			if failed = err; err == nil {
				n++
			}
		}
	}()
	return func() int {
		close(stopped)
		<-ended
		require.NoError(t, failed)
		return n
	}
}

// redirectInbound has the workload's address, and connections to it go to the port where an Envoy takes inbound
// connections, but for those of the Envoy itself.
func redirectInbound(t *testing.T) {
	t.Helper()
	ip(t, "link set lo up")
	ip(t, "addr add "+workloadAddress+"/32 dev lo")
	address := func(offset uint32, op expr.CmpOp, ip string) []expr.Any { // the source or the destination address of a packet
		return []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: net.IPv4len},
			&expr.Cmp{Op: op, Register: 1, Data: net.ParseIP(ip).To4()},
		}
	}
	addRule(t, "redirect", slices.Concat(address(12, expr.CmpOpNeq, "127.0.0.6"), address(16, expr.CmpOpEq, workloadAddress), []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(15006)}, &expr.Redir{RegisterProtoMin: 1},
	})...)
}
