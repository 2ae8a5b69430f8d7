package xds

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
)

// Clients subscribe to virtual hosts by name. Envoy begins with a request without names; the server answers it with no
// resources. An alias reports a missing host, and the host is sent when it exists; a deleted host is removed.
func TestVirtualHostsByName(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(VHostURL, "80/a", "80/b")
	client := fixture.delta(VHostURL)
	client.ask(VHostURL)
	client.expectAck(VHostURL, nil)
	fixture.set(VHostURL, "80/b@2")
	client.silence()
	client.ask(VHostURL, "80/a", "80/none")
	answer := client.next()
	require.Equal(t, []string{"80/a@1"}, answer.puts)
	require.Empty(t, answer.removed)
	require.Equal(t, []string{"80/none"}, answer.unknown)
	client.ack(answer)
	client.silence()
	client.ask(VHostURL, "80/none") // another request for the same host
	answer = client.next()
	require.Equal(t, []string{"80/none"}, answer.unknown)
	client.ack(answer)
	fixture.set(VHostURL, "80/none")
	client.expectAck(VHostURL, nil, "80/none@1")
	fixture.set(VHostURL, "-80/a")
	client.expectAck(VHostURL, nil, "-80/a")

	back := fixture.delta(VHostURL)
	require.NoError(t, back.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: VHostURL, ResourceNamesSubscribe: []string{"80/a", "80/b", "80/c"},
		InitialResourceVersions: map[string]string{"80/a": "1", "80/b": "1"},
	}))
	answer = back.next()
	require.Equal(t, []string{"80/b@2"}, answer.puts)
	require.Equal(t, []string{"80/c"}, answer.unknown)
	back.ack(answer)
	back.expectAck(VHostURL, nil, "-80/a")
	back.silence()
}

// A catalog may set NoWildcard for clusters, too.
func TestByName(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		typ := TypeOf(ClusterURL)
		typ.NoWildcard = true
		w.colls[ClusterURL] = NewCollection(typ, Debounce{})
		w.colls[ClusterURL].MarkSynced()
		w.set(ClusterURL, "a", "b")
		c := dial(ClusterURL)
		c.ask(ClusterURL)
		first := c.expect(ClusterURL)
		c.ack(first)
		c.silence()
		if c.delta {
			c.ask(ClusterURL, "a", "none")
			c.expectAck(ClusterURL, nil, "a@1", "-none")
		} else {
			c.ack(first, "a", "none")
			c.expectAck(ClusterURL, []string{"a", "none"}, "a@1")
		}
		w.set(ClusterURL, "b@2")
		c.silence()
		c.ask(ClusterURL, "*")
		w.set(ClusterURL, "b@3")
		if c.delta {
			c.expectAck(ClusterURL, nil) // it is answered
		}
		c.silence()
	})
}

// Envoy acknowledges no clusters while one of them warms and waits for endpoints. The server sends these endpoints
// although the client has subscribed to another cluster, which has to wait for the acknowledgement.
func TestWarmingCluster_EndpointsDoNotWaitForAck(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(ClusterURL, "a", "b")
		w.set(EndpointURL, "a", "b")
		c := dial(ClusterURL)
		c.ask(ClusterURL, "a")
		answer := c.expect(ClusterURL, "a@1")
		if c.delta {
			c.ask(ClusterURL, "b")
		}
		c.ask(EndpointURL, "a")
		c.expectAck(EndpointURL, []string{"a"}, "a@1")
		c.silence()
		c.ack(answer, "a", "b")
		if c.delta {
			c.expectAck(ClusterURL, nil, "b@1")
		} else {
			c.expectAck(ClusterURL, []string{"a", "b"}, "a@1", "b@1")
		}
	})
}
