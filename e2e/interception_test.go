package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tributary/e2e/fixture"
)

// A program without knowledge of Envoy connects to the address of a service, and the kernel redirects it to the Envoy,
// which directs the connection to that service: by TCP, by a range of addresses, and by HTTP. The test runs in a
// network of its own, where addresses can be redirected.
func TestInterceptionOnTributary(t *testing.T) {
	if os.Getenv("E2E_INTERCEPTED") == "" {
		t.Parallel()
		inNetworkOfItsOwn(t)
		return
	}
	redirect(t)
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	const service = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: default}
spec:
  hosts: [%[1]s.mesh.internal]
  addresses: [%s]
  ports: [{number: %d, name: p, protocol: %s, targetPort: %d}]
  resolution: STATIC
  endpoints: [{address: 127.0.0.1}]
---
`
	mesh := startMesh(t, "mesh.yaml", fmt.Sprintf(service, "tcp", "240.0.0.1", 9000, "TCP", backendOne)+
		fmt.Sprintf(service, "range", "240.1.0.0/16", 9000, "TCP", backendTwo)+
		fmt.Sprintf(service, "http", "240.0.0.2", 80, "HTTP", backendOne)+fmt.Sprintf(service, "other", "240.0.0.3", 80, "HTTP", backendTwo)+
		fmt.Sprintf(service, "detected", "240.0.0.4", 9001, "''", backendTwo)+`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: detected, namespace: default}
spec:
  hosts: [detected.mesh.internal]
  http:
  - match: [{uri: {prefix: /routed}}]
    route: [{destination: {host: tcp.mesh.internal}}]
  - route: [{destination: {host: detected.mesh.internal}}]
---
`+strings.Replace(fmt.Sprintf(service, "shares", "240.0.0.5", 80, "HTTP", backendOne), "addresses: [240.0.0.5]", "addresses: []", 1)+
		strings.Replace(fmt.Sprintf(service, "rest", "240.0.0.6", 80, "TCP", backendTwo), "addresses: [240.0.0.6]", "addresses: []", 1))
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS, "--metadata", "INTERCEPTION_MODE=REDIRECT"))
	for _, want := range []struct{ url, host, backend string }{
		{"http://240.0.0.1:9000", "", "one"},
		{"http://240.1.2.3:9000", "", "two"},
		{"http://240.0.0.2", "http.mesh.internal", "one"},
		{"http://240.0.0.2", "other.mesh.internal", "two"}, // HTTP goes by its host
		{"http://240.0.0.3", "240.0.0.3", "two"},
		{"http://240.0.0.4:9001", "any.host", "two"},
		{"http://240.0.0.4:9001/routed", "any.host", "one"}, // by the VirtualService
		{"http://240.0.0.7", "shares.mesh.internal", "one"},
	} {
		envoy.Await(t, func() error {
			name, err := requestAt(t, want.url, want.host)
			if err == nil && name != want.backend {
				err = fmt.Errorf("%s, %s: answered by %q", want.url, want.host, name)
			}
			return err
		})
	}
	// Bytes that are not HTTP go to the TCP service, and its server answers; Envoy would close the connection.
	for _, address := range []string{"240.0.0.7:80", "240.0.0.4:9001"} {
		envoy.Await(t, func() error {
			conn, err := net.DialTimeout("tcp", address, time.Second)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			if _, err = conn.Write([]byte("NOT HTTP AT ALL\r\n\r\n")); err != nil {
				return err
			}
			answer, err := io.ReadAll(conn)
			if !strings.Contains(string(answer), "400 Bad Request") || strings.Contains(string(answer), "envoy") {
				return fmt.Errorf("%s answered %q: %w", address, answer, err)
			}
			return nil
		})
	}
	mesh.rejectedNothing(t)
}

// inNetworkOfItsOwn runs the test once more in a network with only a loopback interface.
func inNetworkOfItsOwn(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.count", "1", "-test.timeout", "20m")
	cmd.Env = append(os.Environ(), "E2E_INTERCEPTED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if os.IsPermission(err) {
		t.Skip("this machine does not allow a network namespace: ", err)
	}
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// redirect sends connections to 240.0.0.0/4 to the port where an Envoy takes redirected connections.
func redirect(t *testing.T) {
	t.Helper()
	ip(t, "link set lo up")
	ip(t, "route add 240.0.0.0/4 dev lo src 127.0.0.1")
	addRule(t, "redirect",
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: net.IPv4len}, // the destination address of a packet
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: net.IPv4len, Mask: []byte{0xf0, 0, 0, 0}, Xor: make([]byte, net.IPv4len)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0xf0, 0, 0, 0}},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(15001)},
		&expr.Redir{RegisterProtoMin: 1})
}

// ip configures the network.
func ip(t *testing.T, arguments string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(arguments)...).CombinedOutput() //nolint:gosec // of ours
	require.NoError(t, err, "ip %s: %s", arguments, out)
}

// addRule adds a rule for TCP connections of this machine, in a table of its own.
func addRule(t *testing.T, name string, rule ...expr.Any) {
	t.Helper()
	conn, err := nftables.New()
	require.NoError(t, err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: name})
	chain := conn.AddChain(&nftables.Chain{
		Name: "output", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	tcp := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
	}
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(tcp, rule...)})
	require.NoError(t, conn.Flush())
}
