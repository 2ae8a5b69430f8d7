package translate

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// TestEncodeEndpoint_EqualsMessage compares the bytes that are written by hand with those of the messages.
func TestEncodeEndpoint_EqualsMessage(t *testing.T) {
	for _, address := range []string{"10.0.0.1", "2001:db8::1", "unix:///run/a.sock", strings.Repeat("long.", 40) + "example"} {
		for _, port := range []uint32{1, 127, 128, 65535} {
			for _, weight := range []uint32{0, 1, 300} {
				e := &model.Endpoint{
					Address: address, Workload: "w", Namespace: "shop", Labels: map[string]string{"app": strings.Repeat("a", int(port%200))},
					Spec: &networking.WorkloadEntry{Weight: weight},
				}
				p := &model.Port{Number: port}
				where := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
				}}}
				if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
					where.Address = &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}
				}
				host := model.MustMarshal(&endpointv3.LbEndpoint{
					HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: where}},
				})
				details := &endpointv3.LbEndpoint{
					Metadata:            istioMetadata(map[string]*structpb.Value{"workload": structpb.NewStringValue(workloadMetadata(e))}),
					LoadBalancingWeight: wrapperspb.UInt32(max(weight, 1)),
				}
				require.Equal(t, host, appendHost(nil, e, p, nil), "%s %d", address, port)
				require.Equal(t, model.MustMarshal(details), appendDetails(nil, e, false), "%s %d", address, weight)
				details.Metadata.FilterMetadata[matchedMetadata] = mutualFields()
				require.Equal(t, model.MustMarshal(details), appendDetails(nil, e, true), "%s %d", address, weight)
			}
		}
	}
}
