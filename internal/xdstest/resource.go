package xdstest

import (
	"strings"
	"testing"

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

// Text is the text of a resource of Response or DeltaResponse.
func Text(t testing.TB, body *anypb.Any) string {
	t.Helper()
	var text wrapperspb.StringValue
	require.NoError(t, body.UnmarshalTo(&text))
	return text.GetValue()
}
