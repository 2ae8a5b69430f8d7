package adsc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tributary/adsc"
)

// TestRefusedStream_IsNotConnected has a server that delays its refusal, as tributary does, so that clients with a new
// backoff for each stream do not return at once.
func TestRefusedStream_IsNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		config.Backoff = retries(10)
		connected, failed := 0, 0
		config.Hooks.Connected = func(string) { connected++ }
		config.Hooks.Failed = func(error, time.Duration) { failed++ }
		config = bubbled(t, config, func(_ int, s stream) error {
			pause(s, 1100*time.Millisecond)
			return status.Error(codes.ResourceExhausted, "too many streams")
		}, nil)
		_, result := run(t, config)
		require.ErrorContains(t, <-result, "too many streams")
		assert.Equal(t, 10, failed)
		assert.Zero(t, connected)
	})
}

// TestHandlerRefusal_EndsStream has a handler that refuses the server, which counts as a refusal by the server.
func TestHandlerRefusal_EndsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		refuse := func(_ context.Context, r *adsc.Response) error {
			got = append(got, values(t, r)...)
			if len(got)%2 == 0 {
				return &adsc.RefusedError{Err: status.Error(codes.FailedPrecondition, "not from you")}
			}
			return nil
		}
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: refuse})
		config.Backoff = retries(3)
		var failed []error
		config.Hooks.Failed = func(err error, _ time.Duration) { failed = append(failed, err) }
		requests := make(chan *discoveryv3.DiscoveryRequest, 100)
		config = bubbled(t, config, func(_ int, s stream) error {
			for _, content := range []string{"a", "b", "c"} {
				discoveryRequest, err := s.Recv()
				if err != nil {
					return err
				}
				requests <- discoveryRequest
				if err := s.Send(response(t, typeA, "v-"+content, "n-"+content, content)); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return nil
		}, nil)
		_, result := run(t, config)
		require.ErrorContains(t, <-result, "not from you")
		require.Equal(t, []string{"a", "b", "a", "b", "a", "b", "a", "b"}, got, "no response after the refusal")
		require.Len(t, failed, 3)
		for _, err := range failed {
			require.True(t, adsc.Denied(err))
		}
		close(requests)
		for r := range requests {
			require.NotEqual(t, "n-b", r.GetResponseNonce(), "the server receives no reply")
			require.NotEqual(t, "v-b", r.GetVersionInfo(), "it does not count as known")
		}
	})
}

// TestSilentStream_IsConnected has a client with every resource, and a server without changes.
func TestSilentStream_IsConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		b := &counting{}
		config.Backoff = func() backoff.BackOff { return b }
		var connected []time.Duration
		begin := time.Now()
		config.Hooks.Connected = func(string) { connected = append(connected, time.Since(begin)) }
		config = bubbled(t, config, func(n int, s stream) error {
			if n == 0 {
				if err := s.Send(response(t, typeA, "v", "n", "a")); err != nil {
					return err
				}
				pause(s, time.Second)
				return errRestart // too soon
			}
			pause(s, time.Minute)
			return errRestart
		}, nil)
		_, result := run(t, config)
		require.ErrorContains(t, <-result, "restarting")
		require.Len(t, connected, 4)
		assert.Zero(t, connected[0], "it was answered at once")
		assert.GreaterOrEqual(t, connected[1], time.Second+adsc.DefaultStableAfter)
		assert.Equal(t, 3, b.resets, "a stream that stood for a minute was not one of a row of failures")
	})
}

// TestPings_SlowDownOnServerRequest has a server of grpc-go's defaults, which ends connections that it is pinged on more
// often than every five minutes.
func TestPings_SlowDownOnServerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		config.Backoff = retries(1000)
		streams := 0
		config.Hooks.Connected = func(string) { streams++ }
		config = bubbled(t, config, func(_ int, s stream) error {
			pause(s, 1000*time.Hour)
			return nil
		}, nil)
		stop, result := run(t, config)
		time.Sleep(100 * time.Hour)
		stop()
		require.ErrorIs(t, <-result, context.Canceled)
		assert.Less(t, streams, 10)
	})
}

// TestExhaustedServer_SkippedAmongSeveral: it is not asked while another is.
func TestExhaustedServer_SkippedAmongSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		config.Backoff = func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }
		var full, restarting atomic.Int32
		config = bubbled(t, config, func(_ int, s stream) error {
			if md, _ := metadata.FromIncomingContext(s.Context()); md.Get(":authority")[0] == "127.0.0.1:2" {
				restarting.Add(1)
				return status.Error(codes.Unavailable, "restarting")
			}
			full.Add(1)
			return status.Error(codes.ResourceExhausted, "full")
		}, nil)
		config.Addresses = []string{"127.0.0.1:1", "127.0.0.1:2"}
		stop, result := run(t, config)
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 1, full.Load())
		assert.EqualValues(t, 5, restarting.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 2, full.Load())
		stop()
		require.ErrorIs(t, <-result, context.Canceled)
	})
}
