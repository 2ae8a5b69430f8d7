package envoy

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// Forbidden requests pass nowhere: these tests hold possible bypasses.

// A server with TLS settings never speaks in the clear, whatever its protocol is called. Istio refuses such a Gateway,
// but validation: warn serves it, and istiod ends TLS then.
func TestServerWithTLS_AlwaysEncrypted(t *testing.T) {
	for _, protocol := range []string{"TCP", "MONGO", "tls", "HTTPS"} {
		kind, why := model.KindOf(&networking.Server{
			Port: &networking.Port{Number: 443, Protocol: protocol, Name: "a"},
			Tls:  &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_MUTUAL, CredentialName: "a"},
		})
		require.True(t, kind.Encrypted(), "%s %s", protocol, why)
		kind, _ = model.KindOf(&networking.Server{
			Port: &networking.Port{Number: 443, Protocol: protocol, Name: "a"},
			Tls:  &networking.ServerTLSSettings{Mode: 17, CredentialName: "a"},
		})
		require.Equal(t, model.ServerUnknown, kind, "%s with a mode of a newer version, which may ask for certificates of clients", protocol)
	}
}

// TLS settings of a newer version are no reason to send plaintext.
func TestUnknownUpstreamTLS_SendsNoPlaintext(t *testing.T) {
	key := resource.Key{Kind: resource.DestinationRule, Namespace: "default", Name: "a"}
	rule, err := resource.New(resource.Meta{Key: key}, &networking.DestinationRule{
		Host: "a.example", TrafficPolicy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: 17}},
	})
	require.NoError(t, err)
	var table memstore.Table
	table.Apply(append(decoded(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
`), rule), nil)
	for _, node := range nodes {
		resources := dump(t, catalogOfTable(&table), node)
		c, _ := resources[xds.ClusterURL+"/outbound|80||a.example"].(*clusterv3.Cluster)
		e, _ := resources[xds.EndpointURL+"/outbound|80||a.example"].(*endpointv3.ClusterLoadAssignment)
		if c == nil || e == nil {
			continue
		}
		require.Empty(t, e.GetEndpoints(), "%v", node)
	}
}

// An ingress listener for redirected connections enforces no policy on a client without redirection.
func TestIngressWithoutRedirection_EnforcesNoPolicy(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, secured+`---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: default}
spec: {ingress: [{port: {number: 80, name: http, protocol: HTTP}, captureMode: IPTABLES, defaultEndpoint: '127.0.0.1:8080'}]}
`), nil)
	catalog := catalogOfTable(&table)
	n := nodeAt("10.0.0.1", node("default", "NONE", ""))
	for name := range dump(t, catalog, n) {
		require.False(t, strings.HasSuffix(name, "virtualInbound") || strings.HasSuffix(name, "_80") &&
			strings.HasPrefix(name, xds.ListenerURL+"/0.0.0.0"), name)
	}
	_, release, err := catalog.Collection(t.Context(), n, xds.ListenerURL)
	require.NoError(t, err)
	defer release()
	var names []string
	for _, key := range catalog.Unenforced() {
		names = append(names, key.String())
	}
	require.True(t, slices.Contains(names, "AuthorizationPolicy default/deny"), "%v", names)
}

// A security object of the view that cannot be decoded denies like one without a valid version.
func TestUndecodableSecurityObjectsDeny(t *testing.T) {
	var table memstore.Table
	table.Apply(append(decoded(t, twoGateways), resource.FromBody(resource.Meta{
		Key: resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "default", Name: "deny"},
	}, []byte{0xff, 0xff, 0xff})), nil)
	c := catalogOfTable(&table)
	l, _ := dump(t, c, gatewayNode("default"))[xds.ListenerURL+"/0.0.0.0_80"].(*listenerv3.Listener)
	var m hcmv3.HttpConnectionManager
	require.NoError(t, l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(&m))
	require.Equal(t, "envoy.filters.http.rbac", m.GetHttpFilters()[0].GetName())
}
