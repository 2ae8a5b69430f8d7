package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// originations returns all combinations of a DestinationRule's TLS settings that Istio's validation takes.
func originations() (documents []string) {
	for _, mode := range []string{"DISABLE", "SIMPLE", "MUTUAL"} {
		for _, sni := range []string{"", "sni: b.example"} {
			for _, names := range []string{"", "subjectAltNames: [c.example]", "subjectAltNames: [c.example, 'spiffe://d']"} {
				for _, roots := range []string{"", "caCertificates: /ca.pem", "credentialName: cred", "credentialName: 'configmap://default/ca'"} {
					for _, skip := range []string{"", "insecureSkipVerify: true"} {
						settings := []string{"mode: " + mode, sni, names, roots, skip}
						if mode == "MUTUAL" && !strings.HasPrefix(roots, "credential") {
							settings = append(settings, "clientCertificate: /c.pem", "privateKey: /k.pem")
						}
						documents = append(documents, strings.Join(slices.DeleteFunc(settings, func(s string) bool { return s == "" }), ", "))
					}
				}
			}
		}
	}
	return documents
}

// TestOriginationBesideIstiod compares, for each combination of TLS settings, which servers the clusters of a gateway
// accept. A sidecar with a credential connects in the clear behind istiod, and with TLS here.
func TestOriginationBesideIstiod(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	settings := originations()
	for i, tls := range settings {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: s%d, namespace: shop}\nspec: "+
			"{hosts: [s%[1]d.example], location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: %[3]s}], resolution: STATIC, "+
			"endpoints: [{address: 192.0.2.1}]%[4]s}\n---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\n"+
			"metadata: {name: s%[1]d, namespace: shop}\nspec: {host: s%[1]d.example, trafficPolicy: {tls: {%[2]s}}}\n", i, tls,
			[]string{"HTTP", "HTTP2", "TCP"}[i%3],
			[]string{"", ", subjectAltNames: [entry.example]"}[i/3%2])
	}
	node := besideNodes(t)["gateway"]
	s := newBesideSteps(t, nil)
	s.serve("", text.String())
	istiod := istiodBeside(t, s.tr, fixture.Istiod127, "")
	take := func(addr string) (clusters map[string]*cluster.Cluster) {
		fixture.WaitFor(t, 30*time.Second, func() error { // they take one object after another
			if clusters = fixture.TakeClusters(t, addr, node); len(clusters) < len(settings) {
				return fmt.Errorf("%s has %d clusters", addr, len(clusters))
			}
			return nil
		})
		return clusters
	}
	ours, theirs := take(s.tr.XDS), take(istiod.GRPC)
	for i, tls := range settings {
		name := fmt.Sprintf("outbound|80||s%d.example", i)
		require.Equal(t, acceptance(t, theirs[name]), acceptance(t, ours[name]), tls)
	}
}

// acceptance says which servers a cluster accepts.
func acceptance(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	require.NotNil(t, c)
	if c.GetTransportSocket() == nil {
		return "plaintext"
	}
	var socket tlsv3.UpstreamTlsContext
	require.NoError(t, c.GetTransportSocket().GetTypedConfig().UnmarshalTo(&socket))
	var options upstream.HttpProtocolOptions
	if packed := c.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]; packed != nil {
		require.NoError(t, packed.UnmarshalTo(&options))
	}
	validation, names := socket.GetCommonTlsContext().GetCombinedValidationContext(), make(map[string]bool)
	for _, m := range validation.GetDefaultValidationContext().GetMatchTypedSubjectAltNames() {
		names[m.GetMatcher().GetExact()] = true
	}
	for _, m := range validation.GetDefaultValidationContext().GetMatchSubjectAltNames() { //nolint:staticcheck // istiod sends it
		names[m.GetExact()] = true
	}
	http := options.GetUpstreamHttpProtocolOptions()
	return fmt.Sprintf("verified %t, names %v, sni %q, asks for the host %t, which is verified %t, certificates %d", validation != nil, names,
		socket.GetSni(), http.GetAutoSni(), http.GetAutoSanValidation(), len(socket.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()))
}
