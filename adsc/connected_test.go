package adsc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

// TestRefusedStream_IsNotConnected has a server that delays its refusal, as tributary does, so that clients with a new
// backoff for each stream do not return at once.
func TestRefusedStream_IsNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", subscribe(typeA, accept))
		config.Backoff = retries(10)
		connected, failed := 0, 0
		config.Hooks.Connected = func(string) { connected++ }
		config.Hooks.Failed = func(error, time.Duration) { failed++ }
		refusing := endsStreams(1100*time.Millisecond, status.Error(codes.ResourceExhausted, "too many streams"))
		inMemory(&config, refusing.ServeInMemory(t))
		require.ErrorContains(t, <-run(t, config).ended, "too many streams")
		assert.Equal(t, 10, failed)
		assert.Zero(t, connected)
	})
}

// TestHandlerRefusal_EndsStream has a handler that refuses the server, which counts as a refusal by the server.
func TestHandlerRefusal_EndsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		server := xdstest.SotWInMemory(t)
		config := quiet("", subscribe(typeA, func(_ context.Context, r *adsc.Response) error {
			got = append(got, values(t, r)...)
			if len(got)%2 == 0 {
				return &adsc.RefusedError{Err: status.Error(codes.FailedPrecondition, "not from you")}
			}
			return nil
		}))
		config.Backoff = retries(3)
		var failed []error
		config.Hooks.Failed = func(err error, _ time.Duration) { failed = append(failed, err) }
		inMemory(&config, server.Dial...)
		client := run(t, config)
		for i := range 4 {
			stream := server.Next()
			if i == 0 {
				stream.Expect("node n1 A")
			} else {
				stream.Expect("node n1 A version v-a")
			}
			stream.Send(response(t, typeA, "v-a", "n-a", "a"))
			stream.Expect("A version v-a nonce n-a")
			stream.Send(response(t, typeA, "v-b", "n-b", "b"))
			synctest.Wait()
			require.Zero(t, stream.Pending(), "the server receives no reply")
		}
		require.ErrorContains(t, <-client.ended, "not from you")
		require.Equal(t, []string{"a", "b", "a", "b", "a", "b", "a", "b"}, got, "no response after the refusal")
		require.Len(t, failed, 3)
		for _, err := range failed {
			require.True(t, adsc.Denied(err))
		}
	})
}

// TestSilentStream_IsConnected has a client with every resource, and a server without changes.
func TestSilentStream_IsConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", subscribe(typeA, accept))
		b := &counting{}
		config.Backoff = func() backoff.BackOff { return b }
		var connected []time.Duration
		begin := time.Now()
		config.Hooks.Connected = func(string) { connected = append(connected, time.Since(begin)) }
		server := xdstest.SotWInMemory(t)
		inMemory(&config, server.Dial...)
		client := run(t, config)
		stream := server.Next()
		stream.Send(response(t, typeA, "v", "n", "a"))
		time.Sleep(time.Second)
		stream.End(errRestart) // too soon
		for range 3 {
			stream := server.Next()
			time.Sleep(time.Minute)
			stream.End(errRestart)
		}
		require.ErrorContains(t, <-client.ended, "restarting")
		require.Len(t, connected, 4)
		assert.Zero(t, connected[0], "it was answered at once")
		assert.GreaterOrEqual(t, connected[1], time.Second+adsc.DefaultStableAfter)
		assert.Equal(t, 3, b.resets, "a stream that stood for a minute was not one of a row of failures")
	})
}

// TestPings_SlowDownOnServerRequest has a server with grpc-go's defaults, which ends connections with more than one ping in
// five minutes.
func TestPings_SlowDownOnServerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", subscribe(typeA, accept))
		config.Backoff = retries(1000)
		streams := 0
		config.Hooks.Connected = func(string) { streams++ }
		inMemory(&config, xdstest.SotWInMemory(t).Dial...)
		client := run(t, config)
		time.Sleep(100 * time.Hour)
		client.cancel()
		assert.Less(t, streams, 10)
	})
}

// TestExhaustedServer_SkippedAmongSeveral: the client skips the server during its pause, and tries the other one.
func TestExhaustedServer_SkippedAmongSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", subscribe(typeA, accept))
		config.Backoff = func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }
		var full, restarting atomic.Int32
		server := &xdstest.Server{SotW: func(_ int, s xdstest.SotWStream) error {
			if md, _ := metadata.FromIncomingContext(s.Context()); md.Get(":authority")[0] == "127.0.0.1:2" {
				restarting.Add(1)
				return errRestart
			}
			full.Add(1)
			return status.Error(codes.ResourceExhausted, "full")
		}}
		inMemory(&config, server.ServeInMemory(t))
		config.Addresses = []string{"127.0.0.1:1", "127.0.0.1:2"}
		client := run(t, config)
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 1, full.Load())
		assert.EqualValues(t, 5, restarting.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 2, full.Load())
		client.cancel()
	})
}
