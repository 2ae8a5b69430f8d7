package xds

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client that rejects everything gets one response for each change, and none for its rejections.
func TestRejectingClient_GetsOneResponsePerChange(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(testType, "a@0")
		c := dial(testType)
		c.ask(testType)
		a := c.expect(testType, "a@0")
		for i := range 20 {
			for range 2 {
				c.nack(a, "never") // some clients say so again and again
			}
			w.set(testType, fmt.Sprintf("a@%d", i+1))
			a = c.expect(testType, fmt.Sprintf("a@%d", i+1))
		}
		c.silence()
		require.EqualValues(t, 21, w.server.Clients()[0].Types[0].Responses)
	})
}

// Each of many subscription changes gets only the requested resources: if the work were in proportion to the
// subscription, so would be the responses.
func TestTenThousandSubscriptionsOnOneStream(t *testing.T) {
	w := newFixture(t, Options{})
	const n = 10_000
	var commit Commit
	for i := range n {
		commit.Put = append(commit.Put, thing(t, fmt.Sprintf("n%05d", i), "1", ""))
	}
	w.coll(EndpointURL).Apply(commit)
	w.coll(EndpointURL).MarkSynced()
	c := w.delta(EndpointURL)
	seen, sent := map[string]bool{}, 0
	receive := func(a answer) {
		c.ack(a)
		for _, name := range a.puts {
			seen[name] = true
			sent++
		}
	}
	for i := range n {
		c.ask(EndpointURL, fmt.Sprintf("n%05d", i))
		select {
		case a := <-c.answers:
			receive(a)
		default:
		}
	}
	for len(seen) < n {
		receive(c.next())
	}
	require.Equal(t, n, sent, "each once")
	require.Equal(t, n, w.server.Clients()[0].Types[0].Names)
	for i := range n - 1 {
		c.ask(EndpointURL, fmt.Sprintf("-n%05d", i))
	}
	w.awaitSubscription(false, 1)
	w.set(EndpointURL, "n00000@2", "n09999@2")
	c.expectAck(EndpointURL, nil, "n09999@2")
}

// An idle stream does not keep responses: the encoded pages, which are held weakly, are freed.
func TestIdleStream_ReleasesResponses(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(testType, "a")
		c := dial(testType)
		c.ask(testType)
		c.expectAck(testType, nil, "a@1")
		page := w.coll(testType).current.Load().pages[0]
		eventually(t, func() bool {
			runtime.GC()
			for i := range page.cache {
				if page.cache[i].value.Value() != nil {
					return false
				}
			}
			return true
		})
	})
}
