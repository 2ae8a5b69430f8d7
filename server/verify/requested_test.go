package verify

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRequestedKinds_SkipCommands(t *testing.T) {
	requested := RequestedKinds{}
	require.Nil(t, requested.Filter(), "no client is connected")
	for _, namespace := range []string{"default", "istio-system"} {
		requested.AddClient("sidecar~127.0.0.1~tributary-cli."+namespace+"~"+namespace+".svc.cluster.local",
			"networking.istio.io/v1/ServiceEntry")
	}
	requested.AddClient("vm", "type.googleapis.com/envoy.config.cluster.v3.Cluster")
	require.Nil(t, requested.Filter(), "no client like istiod is connected")
	requested.AddClient("istiod", "networking.istio.io/v1/ServiceEntry", "networking.istio.io/v1/VirtualService")
	assert.True(t, requested.Filter()("VirtualService"))
	assert.False(t, requested.Filter()("TrafficExtension"))
}
