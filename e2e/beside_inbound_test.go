package e2e

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// Inbound listeners equal istiod's: they follow the ports of the workload's services, or the ingress of a Sidecar
// instead.
func TestInboundBesideIstiod(t *testing.T) {
	t.Parallel()
	const ingress = `
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec:
  inboundConnectionPool: {tcp: {maxConnections: 27}}
  ingress:
  - {port: {number: 9080, protocol: HTTP, name: a}, bind: 10.9.8.7, defaultEndpoint: "127.0.0.1:8080"}
  - {port: {number: 9081, protocol: TCP, name: b}, bind: 0.0.0.0, defaultEndpoint: "unix:///run/app.sock"}
  - {port: {number: 8080, protocol: GRPC, name: c}, bind: 10.9.8.7, captureMode: NONE, connectionPool: {tcp: {maxConnections: 37}}}
  - {port: {number: 9083, protocol: HTTP, name: d}, captureMode: NONE, defaultEndpoint: "0.0.0.0:8083"}
  - port: {number: 9084, protocol: HTTPS, name: e}
    bind: 10.9.8.7
    defaultEndpoint: 127.0.0.1:8084
    tls: {mode: MUTUAL, serverCertificate: /certs/server.pem, privateKey: /certs/key.pem, caCertificates: /certs/ca.pem}
`
	const local = `
---
apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: istio}
spec: {inboundTrafficPolicy: {mode: LOCALHOST}}
`
	dir, err := filepath.Abs("testdata/inbound")
	require.NoError(t, err)
	for name, test := range map[string]struct{ objects, config string }{
		"services": {"", "{}"}, "a Sidecar": {ingress, "{}"},
		"the loopback interface": {local, `{"inboundTrafficPolicy": {"mode": "LOCALHOST"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			extraDir := t.TempDir()
			write(t, extraDir, "more.yaml", test.objects)
			tr := fixture.StartTributary(t, fixture.Files("files", dir), fixture.Files("more", extraDir))
			tr.AwaitReady(t)
			istiod := istiodBeside(t, tr, test.config)
			istiod.AwaitSynced(t)
			for _, interception := range []string{"NONE", "REDIRECT", "TPROXY"} {
				for _, address := range []string{"10.9.8.7", "10.9.8.9", "10.9.8.10", "10.9.8.11"} {
					node := besideNode(t, interception)
					node.Id = "sidecar~" + address + "~vm1.shop~shop.svc.cluster.local"
					theirs, ours := inboundOnly(fixture.TakeInventory(t, istiod.GRPC, node)), inboundOnly(fixture.TakeInventory(t, tr.XDS, node))
					require.Equal(t, interception != "NONE", theirs.Listeners["virtualInbound"] != nil)
					for _, line := range compare(t, theirs, ours, compared{plain: interception == "NONE"}) {
						t.Errorf("%s at %s: %s", interception, address, line)
					}
				}
			}
		})
	}
}

// inboundOnly keeps the resources of an inventory that are for connections to the workload.
func inboundOnly(i *fixture.Inventory) *fixture.Inventory {
	maps.DeleteFunc(i.Clusters, func(name string, _ *cluster.Cluster) bool {
		return !strings.HasPrefix(strings.ToLower(name), "inbound")
	})
	maps.DeleteFunc(i.Listeners, func(_ string, l *listener.Listener) bool {
		return l.GetTrafficDirection() != core.TrafficDirection_INBOUND
	})
	i.Endpoints, i.Routes = nil, nil
	return i
}
