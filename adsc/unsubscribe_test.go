package adsc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

// TestUnsubscribe_IgnoresLateResponse has a server with a last response that crosses the request to unsubscribe the
// type: the client replies, and calls no handler.
func TestUnsubscribe_IgnoresLateResponse(t *testing.T) {
	for name, c := range map[string]struct {
		names               []string
		unsubscribed, again string
	}{
		"delta, all":   {nil, "A -[*]", "node n1 A"},
		"delta, names": {[]string{"a", "b"}, "A -[a b]", "node n1 A +[a b]"},
	} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.ListenDelta(t)
			handler, summaries := recorder()
			client := run(t, quietDelta(server.Address, subscribe(typeA, handler, c.names...), subscribe(typeB, handler)))
			stream := server.Next()
			stream.Expect(c.again)
			stream.Expect("B")
			stream.Send(deltaResponse(t, "n1", "v", "a@1"))
			assert.Equal(t, "a@1 complete ", xdstest.Receive(t, summaries))
			stream.Expect("A nonce n1")
			require.True(t, client.Synced(typeA))

			client.Unsubscribe(typeA)
			assert.False(t, client.Synced(typeA))
			stream.Expect(c.unsubscribed)
			stream.Send(deltaResponse(t, "n2", "v", "a@2"))
			stream.Expect("A nonce n2")
			assert.Empty(t, summaries)

			// A late response looks like the answer to a new subscription on the same stream.
			client.subscribe(subscribe(typeA, handler, c.names...))
			stream = server.Next()
			for range 2 {
				r := stream.Receive()
				assert.Empty(t, r.GetInitialResourceVersions())
				assert.Empty(t, r.GetResponseNonce())
			}
		})
	}
	for name, c := range map[string]struct{ names, want []string }{
		"state of the world, all":   {nil, []string{"A [*]", "A"}},
		"state of the world, names": {[]string{"a"}, []string{"A"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.ListenSotW(t)
			handler, summaries := recorder()
			client := run(t, quiet(server.Address, subscribe(typeA, handler, c.names...)))
			stream := server.Next()
			stream.Receive()
			client.Unsubscribe(typeA)
			for _, request := range c.want {
				stream.Expect(request)
			}
			stream.Send(response(t, typeA, "v", "n", "a"))
			stream.Expect("A nonce n")
			assert.Empty(t, summaries)
			client.subscribe(subscribe(typeB, handler))
			stream.Expect("B") // the stream goes on
		})
	}
}

// TestResubscribe_SendsBothRequests: the server needs the unsubscription and the subscription.
func TestResubscribe_SendsBothRequests(t *testing.T) {
	server := xdstest.ListenDelta(t)
	var client *adsc.Client
	config := quietDelta(server.Address, subscribe(typeA, accept, "a", "b"))
	handled := 0
	config.Hooks.Response = func(*adsc.Response, error) {
		if handled++; handled == 1 { // while no request can be written
			assert.NoError(t, client.Subscribe(subscribe(typeA, accept, "b")))
			assert.NoError(t, client.Subscribe(subscribe(typeA, accept, "b", "a")))
		}
	}
	client, err := adsc.New(config)
	require.NoError(t, err)
	start(t, client)
	stream := server.Next()
	stream.Receive()
	stream.Send(deltaResponse(t, "n1", "v", "a@1", "b@1"))
	stream.Expect("A nonce n1")
	stream.Expect("A -[a]")
	stream.Expect("A +[a]")
}
