package registry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/fetch"
	"tributary/sources"
	"tributary/sources/presence"
)

// pollTest is a poller of a registry with one service.
type pollTest struct {
	*Poller[svc]
	t    *testing.T
	next Catalog[svc] // of the next read
	err  error
}

func newPollTest(t *testing.T) *pollTest {
	test := &pollTest{t: t}
	test.Poller = NewPoller(PollOptions[svc]{
		PollSettings: PollSettings{Interval: time.Second, Hold: hold, KeepEmpty: keep}, Servers: []string{"a"},
		Read:    func(context.Context, string, bool) (Catalog[svc], error) { return test.next, test.err },
		Mapping: newPlain(), Counts: NewPollCounts("test_"),
	})
	test.Leave(start)
	return test
}

// list makes the registry list endpoints with these ports.
func (p *pollTest) list(ports ...uint32) {
	p.next.Offers = map[string]Offers[svc]{}
	for _, port := range ports {
		offers := p.next.Offers["b"]
		endpoint := Endpoint{Address: "10.0.0.1", Port: port}
		offers.All = append(offers.All, Offer[svc]{ID: "b", Endpoint: endpoint, State: presence.Listed, Protocol: "TCP"})
		p.next.Offers["b"] = offers
	}
}

// poll polls after a time since the start, and compares the served ports.
func (p *pollTest) poll(elapsed time.Duration, state sources.State, ports ...uint32) Batch {
	p.t.Helper()
	batch := p.Poll(p.t.Context(), start.Add(elapsed))
	require.Equal(p.t, state, batch.Health.State, batch.Health.Message)
	var served []uint32
	p.Endpoints(func(_ svc, endpoint Known) { served = append(served, endpoint.Value.Port) })
	require.Equal(p.t, ports, served)
	return batch
}

// TestPoller_Suspicion has endpoints go missing without a suspicion, and after a failed read.
func TestPoller_Suspicion(t *testing.T) {
	pollTest := newPollTest(t)
	pollTest.list(1, 2, 3, 4)
	require.True(t, pollTest.poll(0, sources.Healthy, 1, 2, 3, 4).Synced)
	pollTest.list(1, 2, 3)
	require.False(t, pollTest.poll(time.Second, sources.Healthy, 1, 2, 3).Contents[0].RemovalsObserved)
	pollTest.poll(hold+time.Second, sources.Healthy, 1, 2, 3)
	pollTest.list(1, 2)
	require.True(t, pollTest.poll(2*hold, sources.Healthy, 1, 2).Contents[0].RemovalsObserved)

	pollTest.err = fmt.Errorf("no: %w", fetch.ErrDenied)
	batch := pollTest.poll(3*hold, sources.Denied, 1, 2)
	require.NotNil(t, batch.Note)
	require.Empty(t, batch.Contents)
	pollTest.err = nil
	pollTest.list(2)
	health := pollTest.poll(4*hold, sources.Degraded, 1, 2).Health
	require.Regexp(t, `^1 endpoint is not listed and stays \(model b\) until 03:07:0[12] UTC at the latest: `, health.Message)
	require.Equal(t, 1, health.Unconfirmed)
	pollTest.next.Unchanged = true
	pollTest.poll(5*hold-time.Second, sources.Degraded, 1, 2)
	pollTest.poll(5*hold+time.Second, sources.Healthy, 2)
	require.EqualValues(t, 2, pollTest.Counts.Suspicions.Value())
	require.EqualValues(t, 7, pollTest.Counts.Reads.Value())

	pollTest.next.Unchanged, pollTest.next.Doubtful = false, true
	pollTest.list()
	pollTest.poll(6*hold, sources.Degraded, 2)
}

// TestPoller_Pauses shows how long a poller waits after failures, and that the end of its context is none.
func TestPoller_Pauses(t *testing.T) {
	pollTest := newPollTest(t)
	pollTest.list(1)
	require.Equal(t, time.Second, pollTest.poll(0, sources.Healthy, 1).Next)
	pollTest.err = errors.New("away")
	for _, factor := range []time.Duration{1, 2, 4, 4} {
		next := pollTest.poll(time.Second, sources.Unreachable, 1).Next
		require.True(t, next >= factor*750*time.Millisecond && next <= factor*1250*time.Millisecond, next)
	}
	for _, interval := range []time.Duration{5 * time.Second, time.Minute} {
		pollTest.Interval = interval
		next := pollTest.poll(time.Second, sources.Unreachable, 1).Next
		require.LessOrEqual(t, next, max(interval, 10*time.Second)*5/4, "after many failures")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, Batch{Health: pollTest.health, Next: time.Hour}, pollTest.Poll(ctx, start.Add(time.Second)))
	require.Equal(t, sources.Unreachable, pollTest.health.State)
}

// TestFirst counts the texts that it leaves out.
func TestFirst(t *testing.T) {
	require.Equal(t, []string{"a"}, First([]string{"a"}, "service", "services"))
	require.Equal(t, []string{"a, and 1 more service"}, First([]string{"a", "b"}, "service", "services"))
	require.Equal(t, []string{"a, and 2 more services"}, First([]string{"a", "b", "c"}, "service", "services"))
}

// TestPoller_Health has more problems than the status shows, and a registry without services.
func TestPoller_Health(t *testing.T) {
	pollTest := newPollTest(t)
	pollTest.list(1)
	pollTest.next.Problems = []string{"a", "b", "c", "d"}
	require.Equal(t, "a; b; c; and 1 more instance", pollTest.poll(0, sources.Degraded, 1).Health.Message)
	pollTest.next.Problems = []string{"a", "b", "c", "d", "e"}
	require.Equal(t, "a; b; c; and 2 more instances", pollTest.poll(0, sources.Degraded, 1).Health.Message)

	pollTest = newPollTest(t)
	require.Equal(t, "there is no instance", pollTest.poll(0, sources.Healthy).Health.Message)
	pollTest.next.Empty = "none is selected"
	require.Equal(t, "none is selected", pollTest.poll(time.Second, sources.Healthy).Health.Message)
	pollTest.list(1)
	require.Empty(t, pollTest.poll(2*time.Second, sources.Healthy, 1).Health.Message)
}
