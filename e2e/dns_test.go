package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"tributary/e2e/fixture"
)

// resolver is where an Envoy with DNS_CAPTURE answers.
const resolver = "127.0.0.1:15053"

// resolve asks the Envoy for the addresses of a host.
func resolve(t *testing.T, host string, kind dnsmessage.Type) ([]string, dnsmessage.RCode, error) {
	t.Helper()
	name, err := dnsmessage.NewName(host + ".")
	require.NoError(t, err)
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := question.Pack()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", resolver)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	require.NoError(t, c.SetDeadline(deadline))
	if _, err := c.Write(packed); err != nil {
		return nil, 0, err
	}
	buffer := make([]byte, 512)
	n, err := c.Read(buffer)
	if err != nil {
		return nil, 0, err
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(buffer[:n]); err != nil {
		return nil, 0, err
	}
	var addresses []string
	for _, a := range answer.Answers {
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			addresses = append(addresses, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			addresses = append(addresses, netip.AddrFrom16(body.AAAA).String())
		}
	}
	slices.Sort(addresses)
	return addresses, answer.RCode, nil
}

func resolvesTo(t *testing.T, host string, kind dnsmessage.Type, want ...string) error {
	t.Helper()
	got, code, err := resolve(t, host, kind)
	if err == nil && (!slices.Equal(got, want) || code != dnsmessage.RCodeSuccess) {
		err = fmt.Errorf("%s is %v (%v), want %v", host, got, code, want)
	}
	return err
}

// named is a service with addresses.
func named(name, host, addresses, rest string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: default}
spec: {hosts: [%q], addresses: [%s], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC%s}
`, name, host, addresses, rest)
}

// A real Envoy with DNS_CAPTURE answers queries for visible hosts with addresses, follows changes without losing a
// query, and forwards others to the resolvers of its machine.
func TestDNSOnTributary(t *testing.T) {
	t.Parallel()
	mesh := startMesh(t, "hosts.yaml", named("four", "Four.mesh.internal", "240.0.0.1, 240.0.0.2, 240.0.1.0/24", "")+
		named("six", "six.mesh.internal", `"fd00::6"`, "")+named("wild", "*.wild.internal", "240.0.0.3", "")+
		named("hidden", "hidden.mesh.internal", "240.0.0.4", ", exportTo: [shop]")+
		named("unknown", "unknown.mesh.internal", "240.0.0.5", "")+named("top", "*.top", "240.0.0.6", "")+`---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: some, namespace: default}
spec: {egress: [{hosts: ["*/four.mesh.internal", "*/six.mesh.internal", "*/*.wild.internal", "*/hidden.mesh.internal", "*/*.top"]}]}
`)
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS, "--metadata", "DNS_CAPTURE=true"))
	const four, six = dnsmessage.TypeA, dnsmessage.TypeAAAA
	envoy.Await(t, func() error { return resolvesTo(t, "four.mesh.internal", four, "240.0.0.1", "240.0.0.2") })
	require.NoError(t, resolvesTo(t, "six.mesh.internal", six, "fd00::6"))
	require.NoError(t, resolvesTo(t, "a.b.wild.internal", four, "240.0.0.3"))
	require.NoError(t, resolvesTo(t, "localhost", four, "127.0.0.1"), "the machine knows it")
	_, code, err := resolve(t, "four.mesh.internal", six)
	require.NoError(t, err)
	require.Equal(t, dnsmessage.RCodeNameError, code, "Envoy has it so: it should be no error without addresses")
	require.Error(t, resolvesTo(t, "hidden.mesh.internal", four, "240.0.0.4"))
	require.Error(t, resolvesTo(t, "unknown.mesh.internal", four, "240.0.0.5"))
	require.Error(t, resolvesTo(t, "a.top", four, "240.0.0.6"))

	var queries, failed atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := resolvesTo(t, "six.mesh.internal", six, "fd00::6"); err != nil { //nolint:testifylint // the assertion is on a constant
				failed.Add(1)
			}
			queries.Add(1)
		}
	}()
	for i := range 4 {
		address := fmt.Sprintf("240.1.0.%d", i)
		mesh.write(t, "new.yaml", named("new", fmt.Sprintf("new%d.wild.internal", i), address, ""))
		envoy.Await(t, func() error { return resolvesTo(t, fmt.Sprintf("new%d.wild.internal", i), four, address) })
		require.NoError(t, resolvesTo(t, fmt.Sprintf("new%d.wild.internal", i-1), four, "240.0.0.3"), "it is gone")
	}
	close(stop)
	<-stopped
	require.Positive(t, queries.Load())
	t.Logf("%d queries, %d failed", queries.Load(), failed.Load())
	require.Zero(t, failed.Load())
	mesh.rejectedNothing(t)

	_, text, err := fixture.Get(t.Context(), "http://"+mesh.Admin+"/debug/no-effect")
	require.NoError(t, err)
	require.Contains(t, text, "wildcards of two labels")
	status, _, err := fixture.Get(t.Context(), envoy.URL("/ready"))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}
