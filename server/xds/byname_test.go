package xds

import (
	"testing"

	"tributary/internal/xdstest"
)

// Envoy acknowledges no clusters while one of them warms and waits for endpoints. The server sends these endpoints
// although the client has subscribed to another cluster, which has to wait for the acknowledgement.
func TestWarmingCluster_EndpointsDoNotWaitForAck(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.set(ClusterURL, "a", "b")
		w.set(EndpointURL, "a", "b")
		c := dial()
		c.Ask(ClusterURL, "a")
		answer := c.Expect(ClusterURL, "a@1")
		if c.Delta {
			c.Ask(ClusterURL, "b")
		}
		c.Subscribe(EndpointURL, []string{"a"}, "a@1")
		c.Silence()
		c.Ack(answer, "a", "b")
		if c.Delta {
			c.ExpectAck(ClusterURL, nil, "b@1")
		} else {
			c.ExpectAck(ClusterURL, []string{"a", "b"}, "a@1", "b@1")
		}
	})
}
