package envoy

import (
	"fmt"
	"log/slog"
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
	"tributary/server/envoy/translate"
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

// A mutual TLS of a port is a must for redirected connections, too, where an ingress listener binds the port.
func TestMutualOnABoundPort(t *testing.T) {
	translation := translate.View(&model.View{
		Host: model.InboundPseudoHost, Security: &model.Security{MutualByPort: map[uint32]model.MutualTLS{80: model.Strict}},
		Inbound: &model.Inbound{Captured: true, Ports: []model.WorkloadPort{
			{ServicePort: model.ServicePort{Target: 80, Protocol: "http"}, Address: "127.0.0.1", Bound: true},
		}},
	}, nil)
	require.Len(t, translation.Listeners, 2)
	for _, e := range translation.Listeners {
		if l := messageOf(t, e).(*listenerv3.Listener); l.GetName() == "virtualInbound" {
			require.Contains(t, chainsOf(t, l), "80 any connections to BlackHoleCluster")
		}
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

// pathNormalization of the MeshConfig selects the form of a path that policies match.
func TestPaths_NormalizedBeforePolicies(t *testing.T) {
	for mode, want := range map[string]struct {
		normalize, merge bool
		slashes          hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction
	}{
		"DEFAULT":                  {true, false, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"BASE":                     {true, false, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"NONE":                     {false, false, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"MERGE_SLASHES":            {true, true, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"DECODE_AND_MERGE_SLASHES": {true, true, hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD},
	} {
		var table memstore.Table
		table.Apply(decoded(t, twoGateways), nil)
		catalog := catalogOfTable(&table)
		revision := table.Snapshot().Revision()
		check := func(mode string) {
			n := 0
			for _, client := range []string{"gateway", "sidecar"} {
				node := nodeAt("10.0.0.1", node("default", "REDIRECT", ""))
				name := "virtualInbound"
				if client == "gateway" {
					node, name = gatewayNode("default"), "0.0.0.0_80"
				}
				l, _ := dump(t, catalog, node)[xds.ListenerURL+"/"+name].(*listenerv3.Listener)
				for _, chain := range l.GetFilterChains() {
					for _, f := range chain.GetFilters() {
						var m hcmv3.HttpConnectionManager
						if f.GetTypedConfig().UnmarshalTo(&m) != nil {
							continue
						}
						n++
						require.Equal(t, want.normalize, m.GetNormalizePath().GetValue(), mode)
						require.Equal(t, want.merge, m.GetMergeSlashes(), mode)
						require.Equal(t, want.slashes, m.GetPathWithEscapedSlashesAction(), mode)
					}
				}
			}
			require.Equal(t, 2, n)
		}
		table.Apply(decoded(t, fmt.Sprintf("apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: istio}\n"+
			"spec: {pathNormalization: {normalization: %s}}\n", mode)), nil)
		keys, snap, ok := table.Changes(revision)
		catalog.update(keys, snap, ok, true)
		check(mode)
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
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, true)
	l, _ := dump(t, c, gatewayNode("default"))[xds.ListenerURL+"/0.0.0.0_80"].(*listenerv3.Listener)
	var m hcmv3.HttpConnectionManager
	require.NoError(t, l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(&m))
	require.Equal(t, "envoy.filters.http.rbac", m.GetHttpFilters()[0].GetName())
}
