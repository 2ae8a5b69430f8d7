package output_test

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/adsc"
	"tributary/cmd/internal/output"
)

func socket(address string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func endpoint(address *corev3.Address, health corev3.HealthStatus) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{
		HealthStatus:   health,
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
	}
}

func listener(t *testing.T, configs ...*anypb.Any) *listenerv3.Listener {
	t.Helper()
	l := &listenerv3.Listener{Name: "http", Address: socket("::", 80)}
	for _, config := range configs {
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
			Filters: []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}},
		})
	}
	return l
}

func rds(t *testing.T, name string) *anypb.Any {
	t.Helper()
	config, err := anypb.New(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: name}},
	})
	require.NoError(t, err)
	return config
}

func TestEnvoyTable(t *testing.T) {
	pipe := &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}
	for typeURL, c := range map[string]struct {
		resources []proto.Message
		want      string
	}{
		adsc.ClusterType: {
			[]proto.Message{&clusterv3.Cluster{
				Name:                 "c",
				ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			}},
			"NAME   TYPE   LB\nc      EDS    ROUND_ROBIN\n",
		},
		adsc.EndpointType: {
			[]proto.Message{
				&endpointv3.ClusterLoadAssignment{ClusterName: "none"},
				&endpointv3.ClusterLoadAssignment{ClusterName: "some", Endpoints: []*endpointv3.LocalityLbEndpoints{
					{LbEndpoints: []*endpointv3.LbEndpoint{
						endpoint(socket("10.0.0.1", 80), corev3.HealthStatus_HEALTHY),
						endpoint(socket("10.0.0.2", 80), corev3.HealthStatus_UNHEALTHY),
					}},
					{LbEndpoints: []*endpointv3.LbEndpoint{endpoint(pipe, 0), endpoint(nil, corev3.HealthStatus_DRAINING)}},
				}},
			},
			"NAME   HEALTHY   ENDPOINTS\nnone   0/0       -\nsome   2/4       10.0.0.1:80,10.0.0.2:80,/run/x,+1\n",
		},
		adsc.ListenerType: {
			[]proto.Message{listener(t, rds(t, "a"), rds(t, "b"))},
			"NAME   ADDRESS   ROUTES\nhttp   [::]:80   a,b\n",
		},
		adsc.RouteType: {
			[]proto.Message{&routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{
				{Domains: []string{"a", "b"}},
				{Domains: []string{"c"}},
			}}},
			"NAME   DOMAINS\nr      a,b,c\n",
		},
	} {
		var out strings.Builder
		require.NoError(t, output.EnvoyTable(&out, typeURL, c.resources))
		assert.Equal(t, c.want, out.String())
	}
}

func TestYAMLShowsExtensionsThatAreNotKnown(t *testing.T) {
	text, err := output.Envoy(listener(t, rds(t, "a"),
		&anypb.Any{TypeUrl: "type.googleapis.com/acme.Filter", Value: []byte{8, 1}}), "yaml")
	require.NoError(t, err)
	assert.Contains(t, string(text), "route_config_name: a\n")
	assert.Contains(t, string(text), "'@type': type.googleapis.com/acme.Filter\n")
	repeated, err := output.Envoy(listener(t, rds(t, "a"),
		&anypb.Any{TypeUrl: "type.googleapis.com/acme.Filter", Value: []byte{8, 1}}), "yaml")
	require.NoError(t, err)
	assert.Equal(t, string(text), string(repeated))
}
