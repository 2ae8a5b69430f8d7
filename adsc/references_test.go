package adsc_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

func edsCluster(t *testing.T, name, service string) *anypb.Any {
	return xdstest.Packed(t, &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: service},
	})
}

func listener(t *testing.T, name string, routes ...string) *anypb.Any {
	l := &listenerv3.Listener{Name: name}
	for _, route := range routes {
		hcm := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: route, ConfigSource: &corev3.ConfigSource{},
		}}}
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: xdstest.Packed(t, hcm)},
		}}})
	}
	return xdstest.Packed(t, l)
}

func TestReferences(t *testing.T) {
	for name, c := range map[string]struct {
		resource *anypb.Any
		want     []string
	}{
		"a cluster without EDS":     {xdstest.Packed(t, &clusterv3.Cluster{Name: "static"}), nil},
		"a cluster":                 {edsCluster(t, "a", ""), []string{"a"}},
		"a cluster with a service":  {edsCluster(t, "b", "b-service"), []string{"b-service"}},
		"an undecodable cluster":    {&anypb.Any{TypeUrl: adsc.ClusterType, Value: []byte{0xff}}, nil},
		"a listener":                {listener(t, "in", "r1", "r2"), []string{"r1", "r2"}},
		"a listener without routes": {listener(t, "out"), nil},
		"another type":              {&anypb.Any{TypeUrl: typeA}, nil},
	} {
		assert.Equal(t, c.want, adsc.References(c.resource), name)
	}
}
