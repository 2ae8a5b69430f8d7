package adsc_test

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
)

// TestUnsubscribe_IgnoresLateResponse has a server with a last response that crosses the request to unsubscribe the
// type: the client replies, and calls no handler.
func TestUnsubscribe_IgnoresLateResponse(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		for name, c := range map[string]struct{ names, unsubscribe []string }{
			"all":   {nil, []string{"*"}},
			"names": {[]string{"a", "b"}, []string{"a", "b"}},
		} {
			t.Run(name, func(t *testing.T) {
				requests, streams := make(chan *deltaRequest, 10), make(chan deltaStream, 2)
				address := serveDelta(t, func(_ int, s deltaStream) error {
					streams <- s
					for {
						r, err := s.Recv()
						if err != nil {
							return err
						}
						requests <- r
					}
				})
				handler, heard := teller()
				subscription := adsc.Subscription{TypeURL: typeA, Names: c.names, Handler: handler}
				client, err := adsc.New(deltaConfig(address, subscription, adsc.Subscription{TypeURL: typeB, Handler: handler}))
				require.NoError(t, err)
				start(t, client)
				s := receive(t, streams)
				receive(t, requests)
				receive(t, requests)
				require.NoError(t, s.Send(deltaResponse(t, "n1", "v", "a@1")))
				assert.Equal(t, "a@1 complete ", receive(t, heard))
				assert.Equal(t, "n1", receive(t, requests).GetResponseNonce())
				require.True(t, client.Synced(typeA))

				client.Unsubscribe(typeA)
				assert.False(t, client.Synced(typeA))
				r := receive(t, requests)
				assert.Equal(t, typeA, r.GetTypeUrl())
				assert.Equal(t, c.unsubscribe, r.GetResourceNamesUnsubscribe())
				assert.Empty(t, r.GetResourceNamesSubscribe())
				require.NoError(t, s.Send(deltaResponse(t, "n2", "v", "a@2")))
				assert.Equal(t, "n2", receive(t, requests).GetResponseNonce())
				assert.Empty(t, heard)

				// A late response looks like the answer to a new subscription on the same stream.
				require.NoError(t, client.Subscribe(subscription))
				receive(t, streams)
				for range 2 {
					r := receive(t, requests)
					assert.Empty(t, r.GetInitialResourceVersions())
					assert.Empty(t, r.GetResponseNonce())
				}
			})
		}
	})
	t.Run("state of the world", func(t *testing.T) {
		for name, c := range map[string]struct {
			names []string
			want  [][]string
		}{
			"all":   {nil, [][]string{{"*"}, nil}},
			"names": {[]string{"a"}, [][]string{nil}},
		} {
			t.Run(name, func(t *testing.T) {
				requests, streams := make(chan *discoveryv3.DiscoveryRequest, 10), make(chan stream, 2)
				address := serve(t, func(_ int, s stream) error {
					streams <- s
					for {
						discoveryRequest, err := s.Recv()
						if err != nil {
							return err
						}
						requests <- discoveryRequest
					}
				})
				handler, heard := teller()
				client, err := adsc.New(quiet(address, adsc.Subscription{TypeURL: typeA, Names: c.names, Handler: handler}))
				require.NoError(t, err)
				start(t, client)
				s := receive(t, streams)
				receive(t, requests)
				client.Unsubscribe(typeA)
				for _, want := range c.want {
					assert.Equal(t, want, receive(t, requests).GetResourceNames())
				}
				require.NoError(t, s.Send(response(t, typeA, "v", "n", "a")))
				late := receive(t, requests)
				assert.Equal(t, "n", late.GetResponseNonce())
				assert.Empty(t, late.GetResourceNames())
				assert.Empty(t, heard)
				require.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeB, Handler: handler}))
				assert.Equal(t, typeB, receive(t, requests).GetTypeUrl(), "the stream goes on")
			})
		}
	})
}

// TestResubscribe_SendsBothRequests: the server needs the unsubscription and the subscription.
func TestResubscribe_SendsBothRequests(t *testing.T) {
	requests, streams := make(chan *deltaRequest, 10), make(chan deltaStream, 2)
	address := serveDelta(t, func(_ int, s deltaStream) error {
		streams <- s
		for {
			r, err := s.Recv()
			if err != nil {
				return err
			}
			requests <- r
		}
	})
	var client *adsc.Client
	want := func(names ...string) {
		assert.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: names, Handler: accept}))
	}
	config := deltaConfig(address, adsc.Subscription{TypeURL: typeA, Names: []string{"a", "b"}, Handler: accept})
	handled := 0
	config.Hooks.Response = func(*adsc.Response, error) {
		if handled++; handled == 1 { // while no request can be written
			want("b")
			want("b", "a")
		}
	}
	client, err := adsc.New(config)
	require.NoError(t, err)
	start(t, client)
	s := receive(t, streams)
	receive(t, requests)
	require.NoError(t, s.Send(deltaResponse(t, "n1", "v", "a@1", "b@1")))
	assert.Equal(t, "n1", receive(t, requests).GetResponseNonce())
	assert.Equal(t, []string{"a"}, receive(t, requests).GetResourceNamesUnsubscribe())
	assert.Equal(t, []string{"a"}, receive(t, requests).GetResourceNamesSubscribe())
}
