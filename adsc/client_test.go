package adsc_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/adsc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	typeA = "example.io/v1/A"
	typeB = "example.io/v1/B"
)

// quiet is a configuration with one server and no log.
func quiet(address string, subs ...adsc.Subscription) adsc.Config {
	return adsc.Config{
		Addresses:     []string{address},
		Node:          &corev3.Node{Id: "n1"},
		Subscriptions: subs,
		Backoff:       retries(0),
		Log:           slog.New(slog.DiscardHandler),
	}
}

func accept(context.Context, *adsc.Response) error { return nil }

func TestStream_SubscribesWithOneNode(t *testing.T) {
	requests := make(chan *discoveryv3.DiscoveryRequest, 10)
	address := serve(t, func(_ int, s stream) error {
		for {
			discoveryRequest, err := s.Recv()
			if err != nil {
				return err
			}
			requests <- discoveryRequest
		}
	})
	run(t, quiet(address,
		adsc.Subscription{TypeURL: typeA, Handler: accept},
		adsc.Subscription{TypeURL: typeB, Names: []string{"x", "y"}, Handler: accept},
	))

	first, second := receive(t, requests), receive(t, requests)
	assert.Equal(t, "n1", first.GetNode().GetId())
	assert.Equal(t, typeA, first.GetTypeUrl())
	assert.Empty(t, first.GetResourceNames())
	assert.Empty(t, first.GetResponseNonce())
	assert.Nil(t, second.GetNode(), "only the first request of a stream carries the node")
	assert.Equal(t, typeB, second.GetTypeUrl())
	assert.Equal(t, []string{"x", "y"}, second.GetResourceNames())
}

func TestHandler_DecidesACKOrNACK(t *testing.T) {
	answers := make(chan *discoveryv3.DiscoveryRequest, 10)
	address := serve(t, func(_ int, s stream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		for i, content := range []string{"a", "bad", "c"} {
			if err := s.Send(response(t, typeA, fmt.Sprintf("v%d", i), fmt.Sprintf("n%d", i), content)); err != nil {
				return err
			}
			discoveryRequest, err := s.Recv()
			if err != nil {
				return err
			}
			answers <- discoveryRequest
		}
		<-s.Context().Done()
		return nil
	})
	var got []string
	run(t, quiet(address, adsc.Subscription{TypeURL: typeA, Handler: func(_ context.Context, r *adsc.Response) error {
		got = append(got, values(t, r)...)
		if values(t, r)[0] == "bad" {
			return errRefused
		}
		return nil
	}}))

	ack, nack, next := receive(t, answers), receive(t, answers), receive(t, answers)
	assert.Equal(t, []string{"a", "bad", "c"}, got)
	assert.Equal(t, "v0", ack.GetVersionInfo())
	assert.Equal(t, "n0", ack.GetResponseNonce())
	assert.Nil(t, ack.GetErrorDetail())

	assert.Equal(t, "v0", nack.GetVersionInfo(), "a rejection repeats the last version that was taken")
	assert.Equal(t, "n1", nack.GetResponseNonce())
	assert.Equal(t, errRefused.Error(), nack.GetErrorDetail().GetMessage())
	assert.Equal(t, int32(codes.InvalidArgument), nack.GetErrorDetail().GetCode())

	assert.Equal(t, "v2", next.GetVersionInfo())
	assert.Nil(t, next.GetErrorDetail())
}

func TestNACKMessage_BoundedAndValid(t *testing.T) {
	answers := make(chan *discoveryv3.DiscoveryRequest, 1)
	address := serve(t, func(_ int, s stream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := s.Send(response(t, typeA, "v", "n")); err != nil {
			return err
		}
		r, err := s.Recv()
		answers <- r
		return err
	})
	run(t, quiet(address, adsc.Subscription{TypeURL: typeA, Handler: func(context.Context, *adsc.Response) error {
		return fmt.Errorf("\xff%s", strings.Repeat("é", 1<<20))
	}}))
	reason := receive(t, answers).GetErrorDetail().GetMessage()
	assert.Less(t, len(reason), 20<<10)
	assert.True(t, strings.HasPrefix(reason, "�éé"))
}

func TestReconnect_SendsVersionsWithoutNonces(t *testing.T) {
	firsts := make(chan *discoveryv3.DiscoveryRequest, 2)
	address := serve(t, func(n int, s stream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		firsts <- first
		if n > 0 {
			<-s.Context().Done()
			return nil
		}
		if err := s.Send(response(t, typeA, "v7", "n7", "a")); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil { // the acknowledgement
			return err
		}
		return status.Error(codes.Unavailable, "restarting")
	})
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept})
	cfg.Backoff = retries(1)
	run(t, cfg)

	receive(t, firsts)
	resumed := receive(t, firsts)
	assert.Equal(t, "n1", resumed.GetNode().GetId(), "each stream is introduced")
	assert.Equal(t, "v7", resumed.GetVersionInfo())
	assert.Empty(t, resumed.GetResponseNonce())
}

func TestFailover_ToNextAddress(t *testing.T) {
	address := serve(t, func(_ int, s stream) error {
		if err := s.Send(response(t, typeA, "v", "n", "a")); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	from := make(chan string, 1)
	config := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: func(_ context.Context, r *adsc.Response) error {
		from <- r.Server
		return nil
	}})
	config.Addresses = []string{"127.0.0.1:1", address} // no server listens on port 1
	config.Backoff = retries(1)
	run(t, config)
	assert.Equal(t, address, receive(t, from))
}

func TestSilentServer_LeftForAnother(t *testing.T) {
	silent := serve(t, func(_ int, s stream) error {
		<-s.Context().Done()
		return nil
	})
	responsive := serve(t, answering(t))
	handler, heard := teller()
	config := quiet(silent, adsc.Subscription{TypeURL: typeA, Handler: handler})
	config.Addresses = append(config.Addresses, responsive)
	config.AnswerTimeout = 50 * time.Millisecond
	config.Backoff = retries(1_000_000) // the other one may be late, too
	run(t, config)
	receive(t, heard)
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
			address := serve(t, func(int, stream) error { return status.Error(c.code, "no") })
			config := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept})
			config.Backoff = retries(1)
			config.ExhaustedWait = time.Minute
			waits := make(chan time.Duration, 1)
			config.Hooks.Failed = func(err error, wait time.Duration) {
				assert.Equal(t, c.code == codes.ResourceExhausted, adsc.Exhausted(err))
				waits <- wait
			}
			run(t, config)
			assert.Equal(t, c.want, receive(t, waits))
		})
	}
}

func TestReconnect_SendsNodeAgain(t *testing.T) {
	firsts := make(chan string, 2)
	address := serve(t, func(_ int, s stream) error {
		discoveryRequest, err := s.Recv()
		if err != nil {
			return err
		}
		firsts <- discoveryRequest.GetNode().GetId()
		<-s.Context().Done()
		return nil
	})
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept})
	cfg.Node = &corev3.Node{Id: "node"}
	client, err := adsc.New(cfg) // which would give up after a failure
	require.NoError(t, err)
	start(t, client)
	assert.Equal(t, "node", receive(t, firsts))
	client.Reconnect()
	assert.Equal(t, "node", receive(t, firsts))
}

func TestRunEnds(t *testing.T) {
	hold := func(_ int, s stream) error {
		<-s.Context().Done()
		return nil
	}
	t.Run("with the error of its context", func(t *testing.T) {
		stop, result := run(t, quiet(serve(t, hold), adsc.Subscription{TypeURL: typeA, Handler: accept}))
		stop()
		require.ErrorIs(t, receive(t, result), context.Canceled)
	})
	t.Run("while it waits to reconnect", func(t *testing.T) {
		cfg := quiet("127.0.0.1:1", adsc.Subscription{TypeURL: typeA, Handler: accept})
		waiting := make(chan struct{})
		cfg.Backoff = func() backoff.BackOff { return &forever{calls: waiting} }
		stop, result := run(t, cfg)
		receive(t, waiting)
		stop()
		require.ErrorIs(t, receive(t, result), context.Canceled)
	})
	t.Run("with the last error when the backoff gives up", func(t *testing.T) {
		_, result := run(t, quiet("127.0.0.1:1", adsc.Subscription{TypeURL: typeA, Handler: accept}))
		err := receive(t, result)
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.ErrorContains(t, err, "nobody listens there")
	})
	t.Run("saying that the server ended the stream", func(t *testing.T) {
		address := serve(t, func(int, stream) error { return nil })
		_, result := run(t, quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept}))
		require.ErrorContains(t, receive(t, result), "the server ended it")
	})
	t.Run("with the server's reason", func(t *testing.T) {
		address := serve(t, func(int, stream) error { return status.Error(codes.ResourceExhausted, "too many streams") })
		_, result := run(t, quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept}))
		err := receive(t, result)
		require.ErrorContains(t, err, "too many streams")
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "the code survives wrapping")
	})
}

// forever is a backoff that tells when it was asked, and never lets a retry happen.
type forever struct{ calls chan struct{} }

func (f *forever) NextBackOff() time.Duration {
	close(f.calls)
	return time.Hour
}
func (f *forever) Reset() {}

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
			address := serve(t, func(_ int, s stream) error { return s.Send(response(t, typeA, "v", "n")) })
			config := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept})
			config.StableAfter = c.stableAfter
			b := &counting{}
			config.Backoff = func() backoff.BackOff { return b }
			_, result := run(t, config)
			require.Error(t, receive(t, result))
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
	address := serve(t, func(_ int, s stream) error {
		if err := s.Send(response(t, typeB, "v", "n", "b")); err != nil {
			return err
		}
		if err := s.Send(response(t, typeA, "v", "n", "a")); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	got := make(chan *adsc.Response, 2)
	run(t, quiet(address, adsc.Subscription{TypeURL: typeA, Handler: func(_ context.Context, r *adsc.Response) error {
		got <- r
		return nil
	}}))
	assert.Equal(t, typeA, receive(t, got).TypeURL)
}

func TestResponses_AboveDefaultGRPCLimit(t *testing.T) {
	address := serve(t, func(_ int, s stream) error {
		if err := s.Send(response(t, typeA, "v", "n", strings.Repeat("x", 20<<20))); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}, grpc.MaxSendMsgSize(1<<30))
	got := make(chan int, 1)
	subscription := adsc.Subscription{TypeURL: typeA, Handler: func(_ context.Context, r *adsc.Response) error {
		got <- len(values(t, r)[0])
		return nil
	}}
	run(t, quiet(address, subscription))
	assert.Equal(t, 20<<20, receive(t, got))

	cfg := quiet(address, subscription)
	cfg.MaxMessage = 1 << 20
	_, result := run(t, cfg)
	require.ErrorContains(t, receive(t, result), "larger than max")
}

func TestNew_RefusesInvalidConfig(t *testing.T) {
	sub := adsc.Subscription{TypeURL: typeA, Handler: accept}
	for name, c := range map[string]struct {
		cfg  adsc.Config
		want string
	}{
		"no address":      {adsc.Config{Subscriptions: []adsc.Subscription{sub}}, "no server address"},
		"no port":         {adsc.Config{Addresses: []string{"host"}, Subscriptions: []adsc.Subscription{sub}}, `"host"`},
		"no subscription": {adsc.Config{Addresses: []string{"h:1"}}, "no subscriptions"},
		"no handler":      {adsc.Config{Addresses: []string{"h:1"}, Subscriptions: []adsc.Subscription{{TypeURL: typeA}}}, "has no handler"},
		"no type":         {adsc.Config{Addresses: []string{"h:1"}, Subscriptions: []adsc.Subscription{{Handler: accept}}}, "without a type URL"},
		"type repeated": {
			adsc.Config{Addresses: []string{"h:1"}, Subscriptions: []adsc.Subscription{sub, sub}},
			"two subscriptions to " + typeA,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := adsc.New(c.cfg)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestUnknownType_IsNoAnswer: there is another server to ask.
func TestUnknownType_IsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		streams := 0
		config = bubbled(t, config, func(_ int, s stream) error {
			streams++
			_ = s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: "un/asked/For", Nonce: "x"})
			pause(s, 24*time.Hour)
			return nil
		}, nil, allowPings)
		config.Addresses = []string{"127.0.0.1:1", "127.0.0.1:2"}
		config.Backoff = retries(100)
		run(t, config)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Greater(t, streams, 1, "there is another server to ask")
	})
}
