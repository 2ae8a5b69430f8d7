package xdstest

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Packed packs a message.
func Packed(t testing.TB, message proto.Message) *anypb.Any {
	t.Helper()
	packed, err := anypb.New(message)
	require.NoError(t, err)
	return packed
}

// Response makes a response of texts.
func Response(t testing.TB, typeURL, version, nonce string, texts ...string) *discoveryv3.DiscoveryResponse {
	t.Helper()
	response := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: version, Nonce: nonce}
	for _, text := range texts {
		response.Resources = append(response.Resources, Packed(t, wrapperspb.String(text)))
	}
	return response
}

// DeltaResponse makes a response of texts, "name@version" each, and of removals, "-name" each.
func DeltaResponse(t testing.TB, typeURL, version, nonce string, items ...string) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, SystemVersionInfo: version, Nonce: nonce}
	for _, item := range items {
		if name, removed := strings.CutPrefix(item, "-"); removed {
			response.RemovedResources = append(response.RemovedResources, name)
			continue
		}
		name, version, _ := strings.Cut(item, "@")
		response.Resources = append(response.Resources, &discoveryv3.Resource{
			Name: name, Version: version, Resource: Packed(t, wrapperspb.String(item)),
		})
	}
	return response
}

// EDSCluster is a cluster with the endpoints of a service.
func EDSCluster(name, service string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: service},
	}
}

// Listener is a listener with a filter chain for each of the routes.
func Listener(t testing.TB, name string, routes ...string) *listenerv3.Listener {
	t.Helper()
	listener := &listenerv3.Listener{Name: name}
	for _, route := range routes {
		manager := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: route, ConfigSource: &corev3.ConfigSource{},
		}}}
		listener.FilterChains = append(listener.FilterChains, &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
			Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: Packed(t, manager)},
		}}})
	}
	return listener
}

// Text is the text of a resource of Response or DeltaResponse.
func Text(t testing.TB, body *anypb.Any) string {
	t.Helper()
	var text wrapperspb.StringValue
	require.NoError(t, body.UnmarshalTo(&text))
	return text.GetValue()
}
