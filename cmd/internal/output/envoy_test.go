package output_test

import (
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3" // named by Any
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"tributary/adsc"
	"tributary/cmd/internal/output"
)

// envoyMessage returns a message of Envoy that is written as YAML.
func envoyMessage(t *testing.T, typeURL, text string) proto.Message {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict([]byte("'@type': " + typeURL + "\n" + text))
	require.NoError(t, err)
	var packed anypb.Any
	require.NoError(t, protojson.Unmarshal(asJSON, &packed))
	message, err := packed.UnmarshalNew()
	require.NoError(t, err)
	return message
}

// twoRoutes is a listener with two route configurations.
const twoRoutes = `
name: http
address: {socketAddress: {address: "::", portValue: 80}}
filterChains:
- filters:
  - name: f
    typedConfig:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      rds: {routeConfigName: a}
- filters:
  - name: f
    typedConfig:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      rds: {routeConfigName: b}
`

func TestEnvoyTable(t *testing.T) {
	for typeURL, c := range map[string]struct {
		resources []string
		want      string
	}{
		adsc.ClusterType: {[]string{"name: c\ntype: EDS"}, "NAME   TYPE   LB\nc      EDS    ROUND_ROBIN\n"},
		adsc.EndpointType: {
			[]string{"clusterName: none", `
clusterName: some
endpoints:
- lbEndpoints:
  - {healthStatus: HEALTHY, endpoint: {address: {socketAddress: {address: 10.0.0.1, portValue: 80}}}}
  - {healthStatus: UNHEALTHY, endpoint: {address: {socketAddress: {address: 10.0.0.2, portValue: 80}}}}
- lbEndpoints:
  - {endpoint: {address: {pipe: {path: /run/x}}}}
  - {healthStatus: DRAINING, endpoint: {}}
`},
			"NAME   HEALTHY   ENDPOINTS\nnone   0/0       -\nsome   2/4       10.0.0.1:80,10.0.0.2:80,/run/x,+1\n",
		},
		adsc.ListenerType: {[]string{twoRoutes}, "NAME   ADDRESS   ROUTES\nhttp   [::]:80   a,b\n"},
		adsc.RouteType: {
			[]string{"name: r\nvirtualHosts: [{domains: [a, b]}, {domains: [c]}]"},
			"NAME   DOMAINS\nr      a,b,c\n",
		},
	} {
		var messages []proto.Message
		for _, text := range c.resources {
			messages = append(messages, envoyMessage(t, typeURL, text))
		}
		var out strings.Builder
		require.NoError(t, output.EnvoyTable(&out, typeURL, messages))
		assert.Equal(t, c.want, out.String())
	}
}

func TestEnvoy_UnknownExtension(t *testing.T) {
	listener := envoyMessage(t, adsc.ListenerType, twoRoutes).(*listenerv3.Listener)
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/acme.Filter", Value: []byte{8, 1}}
	listener.FilterChains[1].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: unknown}
	text, err := output.Envoy(listener, "yaml")
	require.NoError(t, err)
	assert.Contains(t, string(text), "route_config_name: a\n")
	assert.Contains(t, string(text), "'@type': type.googleapis.com/acme.Filter\n")
	repeated, err := output.Envoy(listener, "yaml")
	require.NoError(t, err)
	assert.Equal(t, string(text), string(repeated))
}
