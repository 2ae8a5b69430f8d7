package adsc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

func TestStream_SubscribesWithOneNode(t *testing.T) {
	server := xdstest.ListenSotW(t)
	run(t, quiet(server.Address, subscribe(typeA, accept), subscribe(typeB, accept, "x", "y")))
	stream := server.Next()
	stream.Expect("node n1 A")
	stream.Expect("B [x y]")
}

func TestHandler_DecidesACKOrNACK(t *testing.T) {
	server := xdstest.ListenSotW(t)
	var got []string
	run(t, quiet(server.Address, subscribe(typeA, func(_ context.Context, r *adsc.Response) error {
		got = append(got, values(t, r)...)
		if values(t, r)[0] == "bad" {
			return errRefused
		}
		return nil
	})))
	stream := server.Next()
	stream.Expect("node n1 A")
	stream.Send(response(t, typeA, "v0", "n0", "a"))
	stream.Expect("A version v0 nonce n0")
	stream.Send(response(t, typeA, "v1", "n1", "bad"))
	stream.Expect("A version v0 nonce n1 error InvalidArgument: " + errRefused.Error()) // with the last accepted version
	stream.Send(response(t, typeA, "v2", "n2", "c"))
	stream.Expect("A version v2 nonce n2")
	assert.Equal(t, []string{"a", "bad", "c"}, got)
}

func TestNACKMessage_BoundedAndValid(t *testing.T) {
	server := xdstest.ListenSotW(t)
	run(t, quiet(server.Address, subscribe(typeA, func(context.Context, *adsc.Response) error {
		return fmt.Errorf("\xff%s", strings.Repeat("é", 1<<20))
	})))
	stream := server.Next()
	stream.Receive()
	reason := stream.Exchange(response(t, typeA, "v", "n")).GetErrorDetail().GetMessage()
	assert.Less(t, len(reason), 20<<10)
	assert.True(t, strings.HasPrefix(reason, "�éé"))
}

func TestReconnect_SendsVersionsWithoutNonces(t *testing.T) {
	server := xdstest.ListenSotW(t)
	config := quiet(server.Address, subscribe(typeA, accept))
	config.Backoff = retries(1)
	run(t, config)
	stream := server.Next()
	stream.Receive()
	stream.Exchange(response(t, typeA, "v7", "n7", "a"))
	stream.End(errRestart)
	server.Next().Expect("node n1 A version v7")
}

func TestFailover_ToNextAddress(t *testing.T) {
	address := respondsOnce(t).Serve(t)
	from := make(chan string, 1)
	config := quiet(address, subscribe(typeA, func(_ context.Context, r *adsc.Response) error {
		from <- r.Server
		return nil
	}))
	config.Addresses = []string{"127.0.0.1:1", address} // no server listens on port 1
	config.Backoff = retries(1)
	run(t, config)
	assert.Equal(t, address, xdstest.Receive(t, from))
}

func TestSilentServer_LeftForAnother(t *testing.T) {
	handler, summaries := recorder()
	config := quiet(xdstest.ListenSotW(t).Address, subscribe(typeA, handler))
	config.Addresses = append(config.Addresses, respondsOnce(t).Serve(t))
	config.AnswerTimeout = 50 * time.Millisecond
	config.Backoff = retries(1_000_000) // the other one may be late, too
	run(t, config)
	xdstest.Receive(t, summaries)
}

func TestExhaustedServer_WaitsLonger(t *testing.T) {
	for name, c := range map[string]struct {
		code codes.Code
		want time.Duration
	}{
		"exhausted": {codes.ResourceExhausted, time.Minute},
		"denied":    {codes.Unauthenticated, 0},
	} {
		t.Run(name, func(t *testing.T) {
			config := quiet(endsStreams(0, status.Error(c.code, "no")).Serve(t), subscribe(typeA, accept))
			config.Backoff = retries(1)
			config.ExhaustedWait = time.Minute
			waits := make(chan time.Duration, 1)
			config.Hooks.Failed = func(err error, wait time.Duration) {
				assert.Equal(t, c.code == codes.ResourceExhausted, adsc.Exhausted(err))
				waits <- wait
			}
			run(t, config)
			assert.Equal(t, c.want, xdstest.Receive(t, waits))
		})
	}
}

func TestReconnect_SendsNodeAgain(t *testing.T) {
	server := xdstest.ListenSotW(t)
	client := run(t, quiet(server.Address, subscribe(typeA, accept))) // which would give up after a failure
	server.Next().Expect("node n1 A")
	client.Reconnect()
	server.Next().Expect("node n1 A")
}

func TestRun_ReturnsErrorOfContextOrStream(t *testing.T) {
	t.Run("with the error of its context", func(t *testing.T) {
		run(t, quiet(xdstest.ListenSotW(t).Address, subscribe(typeA, accept))).cancel()
	})
	t.Run("while it waits to reconnect", func(t *testing.T) {
		config := quiet("127.0.0.1:1", subscribe(typeA, accept))
		waiting := make(chan struct{})
		config.Backoff = func() backoff.BackOff { return &endlessWait{calls: waiting} }
		client := run(t, config)
		xdstest.Receive(t, waiting)
		client.cancel()
	})
	for name, c := range map[string]struct {
		server *xdstest.Server // nil for none
		code   codes.Code
		want   []string
	}{
		"with the last error when the backoff gives up": {
			nil, codes.Unavailable, []string{"127.0.0.1:1", "nobody listens there"},
		},
		"saying that the server ended the stream": {endsStreams(0, nil), codes.Unknown, []string{"the server ended it"}},
		"with the server's reason": {
			endsStreams(0, status.Error(codes.ResourceExhausted, "too many streams")), codes.ResourceExhausted,
			[]string{"too many streams"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := "127.0.0.1:1"
			if c.server != nil {
				address = c.server.Serve(t)
			}
			err := receive(t, run(t, quiet(address, subscribe(typeA, accept))).ended)
			for _, text := range c.want {
				require.ErrorContains(t, err, text)
			}
			assert.Equal(t, c.code, status.Code(err), "the code survives wrapping")
		})
	}
}

// endlessWait is a backoff that closes calls at its first use, and allows no retry.
type endlessWait struct{ calls chan struct{} }

func (f *endlessWait) NextBackOff() time.Duration {
	close(f.calls)
	return time.Hour
}
func (f *endlessWait) Reset() {}

// TestBackoff_ResetAfterStableStreamOnly counts streams to a server that refuses each at once: resetting on every
// opened stream would hammer it.
func TestBackoff_ResetAfterStableStreamOnly(t *testing.T) {
	for _, c := range []struct {
		name        string
		stableAfter time.Duration
		resets      bool
	}{
		{"short-lived", time.Hour, false},
		{"stable", time.Nanosecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := xdstest.Server{SotW: func(_ int, s xdstest.SotWStream) error {
				return s.Send(response(t, typeA, "v", "n"))
			}}
			config := quiet(server.Serve(t), subscribe(typeA, accept))
			config.StableAfter = c.stableAfter
			b := &counting{}
			config.Backoff = func() backoff.BackOff { return b }
			require.Error(t, receive(t, run(t, config).ended))
			assert.Equal(t, c.resets, b.resets > 0)
		})
	}
}

// counting is a backoff of three retries that counts resets.
type counting struct{ retries, resets int }

func (c *counting) NextBackOff() time.Duration {
	if c.retries++; c.retries > 3 {
		return backoff.Stop
	}
	return time.Millisecond
}
func (c *counting) Reset() { c.resets++ }

func TestUnsubscribedType_Ignored(t *testing.T) {
	server := xdstest.ListenSotW(t)
	got := make(chan *adsc.Response, 2)
	run(t, quiet(server.Address, subscribe(typeA, func(_ context.Context, r *adsc.Response) error {
		got <- r
		return nil
	})))
	server.Next().Send(response(t, typeB, "v", "n", "b"), response(t, typeA, "v", "n", "a"))
	assert.Equal(t, typeA, xdstest.Receive(t, got).TypeURL)
}

func TestResponses_AboveDefaultGRPCLimit(t *testing.T) {
	server := xdstest.ListenSotW(t, grpc.MaxSendMsgSize(1<<30))
	large := response(t, typeA, "v", "n", strings.Repeat("x", 20<<20))
	got := make(chan int, 1)
	config := quiet(server.Address, subscribe(typeA, func(_ context.Context, r *adsc.Response) error {
		got <- len(values(t, r)[0])
		return nil
	}))
	run(t, config)
	server.Next().Send(large)
	assert.Equal(t, 20<<20, xdstest.Receive(t, got))

	config.MaxMessage = 1 << 20
	client := run(t, config)
	server.Next().Send(large)
	require.ErrorContains(t, receive(t, client.ended), "larger than max")
}

func TestNew_RefusesInvalidConfig(t *testing.T) {
	sub := subscribe(typeA, accept)
	for name, c := range map[string]struct {
		address string
		subs    []adsc.Subscription
		want    string
	}{
		"no address":      {"", []adsc.Subscription{sub}, "no server address"},
		"no port":         {"host", []adsc.Subscription{sub}, `"host"`},
		"no subscription": {"h:1", nil, "no subscriptions"},
		"no handler":      {"h:1", []adsc.Subscription{{TypeURL: typeA}}, "has no handler"},
		"no type":         {"h:1", []adsc.Subscription{{Handler: accept}}, "without a type URL"},
		"type repeated":   {"h:1", []adsc.Subscription{sub, sub}, "two subscriptions to " + typeA},
	} {
		t.Run(name, func(t *testing.T) {
			config := adsc.Config{Subscriptions: c.subs}
			if c.address != "" {
				config.Addresses = []string{c.address}
			}
			_, err := adsc.New(config)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestUnrequestedResponse_DoesNotEndAnswerTimeout has a server that sends only an unrequested type: the client moves on to
// another server.
func TestUnrequestedResponse_DoesNotEndAnswerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", subscribe(typeA, accept))
		streams := 0
		server := &xdstest.Server{SotW: func(_ int, s xdstest.SotWStream) error {
			streams++
			_ = s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: "un/asked/For", Nonce: "x"})
			<-s.Context().Done()
			return nil
		}}
		inMemory(&config, server.ServeInMemory(t, allowPings))
		config.Addresses = []string{"127.0.0.1:1", "127.0.0.1:2"}
		config.Backoff = retries(100)
		run(t, config)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Greater(t, streams, 1, "there is another server to ask")
	})
}
