package verify

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAsked(t *testing.T) {
	asked := Asked{}
	require.Nil(t, asked.For(), "nobody is connected")
	for _, namespace := range []string{"default", "istio-system"} {
		asked.Client("sidecar~127.0.0.1~tributary-cli."+namespace+"~"+namespace+".svc.cluster.local", "networking.istio.io/v1/ServiceEntry")
	}
	asked.Client("vm", "type.googleapis.com/envoy.config.cluster.v3.Cluster")
	require.Nil(t, asked.For(), "nobody is connected that is like an istiod")
	asked.Client("istiod", "networking.istio.io/v1/ServiceEntry", "networking.istio.io/v1/VirtualService")
	assert.True(t, asked.For()("VirtualService"))
	assert.False(t, asked.For()("TrafficExtension"))
}
