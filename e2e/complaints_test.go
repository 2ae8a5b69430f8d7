package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
)

// answersAt returns what waits until a host of regexHosts answers with a text.
func answersAt(t *testing.T, envoy *fixture.Envoy, port int) func(host int, text string) {
	return func(host int, text string) {
		t.Helper()
		envoy.WaitFor(t, 30*time.Second, func() error {
			got, err := requestAs(t, port, fmt.Sprintf("h%d.mesh.internal", host))
			if err == nil && got != text {
				err = fmt.Errorf("h%d answers %q, and not yet %q", host, got, text)
			}
			return err
		})
	}
}

// One object that an Envoy rejects from the first start on stops neither the others of its port nor what changes later.
func TestBadAtTheFirstStartOnTributary(t *testing.T) {
	t.Parallel()
	port := fixture.FreePort(t)
	mesh := startMesh(t, "mesh.yaml", regexHosts(port, 4, "v1", 2))
	for _, namespace := range []string{"default", "other"} {
		envoy := fixture.StartEnvoyWith(t, strict.Replace(bootstrap(t, "envoy", "--server", mesh.XDS, "--metadata", "NAMESPACE="+namespace)))
		answers := answersAt(t, envoy, port)
		answers(0, "v1")
		answers(3, "v1")
		envoy.Kill()
	}
	envoy := fixture.StartEnvoyWith(t, strict.Replace(bootstrap(t, "envoy", "--server", mesh.XDS)))
	answers := answersAt(t, envoy, port)
	answers(1, "v1")
	require.Contains(t, mesh.Ask(t, "status"), "VirtualService default/h2 by Envoys: ")
	mesh.write(t, "mesh.yaml", regexHosts(port, 4, "v2", 2))
	answers(1, "v2")
	mesh.write(t, "mesh.yaml", regexHosts(port, 4, "v3", -1))
	answers(2, "v3")
	require.NotContains(t, mesh.Ask(t, "status"), "by Envoys")
}

// A new service whose VirtualService is wrong is there when that is mended.
func TestANewServiceIsThereWhenItsRoutesAreMendedOnTributary(t *testing.T) {
	t.Parallel()
	port := fixture.FreePort(t)
	mesh := startMesh(t, "mesh.yaml", regexHosts(port, 2, "v1", -1))
	envoy := fixture.StartEnvoyWith(t, strict.Replace(bootstrap(t, "envoy", "--server", mesh.XDS)))
	answers := answersAt(t, envoy, port)
	answers(1, "v1")
	mesh.write(t, "mesh.yaml", regexHosts(port, 4, "v2", 3))
	answers(2, "v2")
	envoy.WaitFor(t, 30*time.Second, func() error {
		if status := mesh.Ask(t, "status"); !strings.Contains(status, "VirtualService default/h3 by Envoys: ") || strings.Contains(status, "ServiceEntry default/h3 by Envoys: ") {
			return fmt.Errorf("the VirtualService alone is not in quarantine: %s", status)
		}
		return nil
	})
	mesh.write(t, "mesh.yaml", regexHosts(port, 4, "v3", -1))
	answers(3, "v3")
}

// A client that rejects what others use, and then says nothing, or hangs up, costs nobody else anything: what they use is there all the time, and they are heard.
func TestNobodyPaysForTheComplaintOfAnotherOnTributary(t *testing.T) {
	t.Parallel()
	const hosts = 8
	port, other := fixture.FreePort(t), fixture.FreePort(t)
	mesh := startMesh(t, "mesh.yaml", regexHosts(port, 1, "v1", -1))
	envoy := fixture.StartEnvoyWith(t, strict.Replace(bootstrap(t, "envoy", "--server", mesh.XDS)))
	answersAt(t, envoy, port)(0, "v1")
	mesh.write(t, "mesh.yaml", regexHosts(port, hosts, "v1", -1))
	for i := range hosts {
		answersAt(t, envoy, port)(i, "v1")
	}
	second := func(text string, large int) string {
		return strings.ReplaceAll(strings.ReplaceAll(regexHosts(other, 2, text, large), "{name: h", "{name: x"), "[h", "[x")
	}
	mesh.write(t, "other.yaml", second("v1", -1))

	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("%d/h%d.mesh.internal", port, i))
	}
	var odd sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer odd.Wait()
	defer stop()
	for i := range 3 {
		odd.Go(func() { // says no once, and no more
			for ctx.Err() == nil {
				rejectOnce(ctx, mesh.XDS, fmt.Sprintf("127.0.0.%d", 70+i), names)
			}
		})
	}
	failed, asked := make(map[string]int), 0
	until := time.Now().Add(8 * time.Second)
	for wrote := false; time.Now().Before(until); asked++ {
		got, err := requestAs(t, port, fmt.Sprintf("h%d.mesh.internal", asked%hosts))
		if err != nil {
			got = err.Error()
		}
		if got != "v1" {
			failed[got]++
		}
		if !wrote && time.Until(until) < 5*time.Second {
			mesh.write(t, "other.yaml", second("v2", 1))
			wrote = true
		}
	}
	t.Logf("%d requests", asked)
	require.Empty(t, failed)
	envoy.WaitFor(t, 10*time.Second, func() error {
		if got, err := requestAs(t, other, "x0.mesh.internal"); err != nil || got != "v2" {
			return errors.Join(fmt.Errorf("what an honest Envoy rejects stops its port: x0 answers %q", got), err)
		}
		return nil
	})
	status := mesh.Ask(t, "status")
	require.Contains(t, status, "VirtualService default/x1 by Envoys: ")
	for i := range hosts {
		require.NotContains(t, status, fmt.Sprintf("default/h%d by Envoys", i))
	}
}

// rejectOnce has a client on demand, in a namespace where nobody else is, ask for virtual hosts from an address, reject the first of them, and be silent for some seconds.
func rejectOnce(ctx context.Context, addr, from string, names []string) {
	ctx, stop := context.WithTimeout(ctx, 4*time.Second)
	defer stop()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", addr)
	}))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return
	}
	text := structpb.NewStringValue
	node := &corev3.Node{Id: "odd", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"ON_DEMAND": text("true"), "NAMESPACE": text("nobodys")}}}
	const vhosts = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	if stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: vhosts, ResourceNamesSubscribe: names}) != nil {
		return
	}
	said := 0
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		if said++; said > len(names) {
			continue
		}
		if stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: vhosts, ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Code: 13, Message: "no"}}) != nil {
			return
		}
	}
}
