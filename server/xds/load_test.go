package xds

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/xdstest"
)

// A client that rejects everything gets one response for each change, and none for its rejections.
func TestRejectingClient_GetsOneResponsePerChange(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.set(testType, "a@0")
		c := dial()
		c.Ask(testType)
		answer := c.Expect(testType, "a@0")
		for i := range 20 {
			for range 2 {
				c.Nack(answer, "never") // some clients say so again and again
			}
			w.set(testType, fmt.Sprintf("a@%d", i+1))
			answer = c.Expect(testType, fmt.Sprintf("a@%d", i+1))
		}
		c.Silence()
		require.EqualValues(t, 21, w.server.Clients()[0].Types[0].Responses)
	})
}

// Each of many subscription changes gets only the requested resources: if the work were in proportion to the
// subscription, so would be the responses.
func TestTenThousandSubscriptionsOnOneStream(t *testing.T) {
	fixture := newFixture(t)
	const n = 10_000
	var commit Commit
	for i := range n {
		commit.Put = append(commit.Put, padded(t, fmt.Sprintf("n%05d", i), "1", ""))
	}
	fixture.coll(EndpointURL).Apply(commit)
	fixture.coll(EndpointURL).MarkSynced()
	client := fixture.delta()
	seen, sent := map[string]bool{}, 0
	receive := func(a xdstest.Answer) {
		client.Ack(a)
		for _, name := range a.Puts {
			seen[name] = true
			sent++
		}
	}
	for i := range n {
		client.Ask(EndpointURL, fmt.Sprintf("n%05d", i))
		select {
		case a := <-client.Answers:
			receive(a)
		default:
		}
	}
	for len(seen) < n {
		receive(client.Next())
	}
	require.Equal(t, n, sent, "each once")
	require.Equal(t, n, fixture.server.Clients()[0].Types[0].Names)
	for i := range n - 1 {
		client.Ask(EndpointURL, fmt.Sprintf("-n%05d", i))
	}
	fixture.awaitSubscription(false, 1)
	fixture.set(EndpointURL, "n00000@2", "n09999@2")
	client.ExpectAck(EndpointURL, nil, "n09999@2")
}

// An idle stream does not keep responses: the encoded pages, which are held weakly, are freed.
func TestIdleStream_ReleasesResponses(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.set(testType, "a")
		c := dial()
		c.Subscribe(testType, nil, "a@1")
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
