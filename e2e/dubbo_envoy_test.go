package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// TestDubboThroughEnvoy shows that calls of the dubbo protocol to a service's virtual address go through a real Envoy,
// with listeners from istiod, to the running providers: one, two, the other one, none. The calls come from a real
// consumer, in Java, and on connections of their own, which are spread. Each provider has an address of its own, as
// istiod takes two ports of one address for one endpoint (docs/peers.md). The virtual addresses are loopback ones here,
// since no rule diverts connections to Envoy: a Sidecar has it listen there.
func TestDubboThroughEnvoy(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeper(t, "maxSessionTimeout=4000")
	port, dir := fixture.FreePort(t), t.TempDir()
	tributary := fixture.StartTributaryWith(t, fmt.Sprintf(`virtualAddresses: 127.77.0.0/16
configSources:
- {name: rules, address: "fs://%s"}
- {name: dubbo, address: "zookeeper://%s", hold: 1s, servicePorts: {dubbo: %d}}
`, dir, zookeeper.Addr, port))
	provider := func(app, ip string) *fixture.Process {
		return fixture.DubboGo{App: app, Mode: "all", Protocol: "dubbo", Registry: zookeeper.Addr, IP: ip, Port: fixture.FreePort(t)}.Start(t)
	}
	providerOne := provider("one", "127.0.0.2")
	istiod := tributary.StartIstiod(t)
	vip := ""
	istiod.WaitFor(t, 30*time.Second, func() error {
		configs, err := istiod.Configs(t.Context())
		for _, object := range configs {
			if se, ok := object.Message().(*networking.ServiceEntry); ok && len(se.Endpoints) == 1 && len(se.Addresses) == 1 {
				vip = se.Addresses[0]
				return nil
			}
		}
		return errors.Join(err, errors.New("no service with a virtual address"))
	})
	require.True(t, strings.HasPrefix(vip, "127.77."), vip)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sidecar.yaml"), fmt.Appendf(nil, `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: consumer, namespace: default}
spec:
  egress:
  - port: {number: %d, protocol: TCP, name: tcp-dubbo}
    bind: %s
    captureMode: NONE
    hosts: [dubbo/*]
`, port, vip), 0o600))
	envoy := fixture.StartEnvoy(t, istiod.GRPC)
	address := net.JoinHostPort(vip, fmt.Sprint(port))
	answer := func(apps ...string) {
		t.Helper()
		envoy.WaitFor(t, 60*time.Second, func() error {
			err := answersOf(address, apps)
			if err != nil {
				held, _ := greeters(t.Context(), istiod)
				err = fmt.Errorf("%w; istiod holds %v", err, held)
			}
			return err
		})
	}
	answer("one")
	consumer := fixture.StartDubboConsumer(t, "com.acme.greeter", vip, port)
	consumes := func(app string) {
		t.Helper()
		consumer.WaitFor(t, 60*time.Second, func() error {
			if output := consumer.Output(); !strings.HasSuffix(output[:strings.LastIndexByte(output, '\n')+1], "ANSWER hello bob from "+app+"\n") {
				return fmt.Errorf("the consumer is not answered by %s: %s", app, output[max(0, len(output)-300):])
			}
			return nil
		})
	}
	consumes("one")
	providerTwo := provider("two", "127.0.0.3")
	answer("one", "two")
	providerOne.Terminate(t, 20*time.Second)
	answer("two")
	consumes("two") // a consumer keeps its connection while it can
	providerTwo.Terminate(t, 20*time.Second)
	envoy.WaitFor(t, 60*time.Second, func() error {
		if app, err := callGreeter(address); err == nil {
			return fmt.Errorf("%s answers", app)
		}
		return nil
	})
}

// answersOf makes calls until each of the applications has answered, and says if another one has.
func answersOf(address string, apps []string) error {
	seen := map[string]bool{}
	for range 20 {
		app, err := callGreeter(address)
		if err != nil {
			return err
		}
		seen[app] = true
	}
	for _, app := range apps {
		if !seen[app] {
			return fmt.Errorf("no answer of %s, but of %v", app, seen)
		}
	}
	if len(seen) != len(apps) {
		return fmt.Errorf("answers of %v, want %v", seen, apps)
	}
	return nil
}

// callGreeter calls com.acme.Greeter as a consumer of the dubbo protocol does, over a connection of its own, and
// returns which application answered.
func callGreeter(address string) (app string, err error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	var body bytes.Buffer
	text := func(s string) { body.WriteByte(byte(len(s))); body.WriteString(s) } // hessian2, of less than 32 characters
	for _, s := range []string{"2.0.2", "com.acme.Greeter", "0.0.0", "Greet", "Ljava/lang/String;", "bob"} {
		text(s)
	}
	body.WriteByte('H')
	for _, s := range []string{"path", "com.acme.Greeter", "interface", "com.acme.Greeter", "version", "0.0.0"} {
		text(s)
	}
	body.WriteByte('Z')
	head := []byte{0xda, 0xbb, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[12:], uint32(body.Len()))
	if _, err := conn.Write(append(head, body.Bytes()...)); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(conn, head); err != nil {
		return "", err
	}
	answer := make([]byte, binary.BigEndian.Uint32(head[12:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return "", err
	}
	_, after, ok := strings.Cut(string(answer), "hello bob from ")
	if !ok || len(after) < 3 {
		return "", fmt.Errorf("status %d: %q", head[3], answer)
	}
	return after[:3], nil
}
