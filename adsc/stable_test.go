package adsc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/adsc"
)

// TestARefusedStreamIsNotConnected has a server keep a stream for a while before it refuses it, as tributary does, so that
// clients that start their backoff anew with each stream do not come back at once.
func TestARefusedStreamIsNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		cfg.Backoff = retries(10)
		connected, failed := 0, 0
		cfg.Hooks.Connected = func(string) { connected++ }
		cfg.Hooks.Failed = func(error, time.Duration) { failed++ }
		cfg = bubbled(t, cfg, func(_ int, s stream) error {
			pause(s, 1100*time.Millisecond)
			return status.Error(codes.ResourceExhausted, "too many streams")
		}, nil)
		_, result := run(t, cfg)
		require.ErrorContains(t, <-result, "too many streams")
		assert.Equal(t, 10, failed)
		assert.Zero(t, connected)
	})
}

// TestASilentStreamThatStandsIsConnected is a client that has everything, and a server that has nothing to tell it.
func TestASilentStreamThatStandsIsConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		b := &counting{}
		cfg.Backoff = func() backoff.BackOff { return b }
		var connected []time.Duration
		begin := time.Now()
		cfg.Hooks.Connected = func(string) { connected = append(connected, time.Since(begin)) }
		cfg = bubbled(t, cfg, func(n int, s stream) error {
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
		_, result := run(t, cfg)
		require.ErrorContains(t, <-result, "restarting")
		require.Len(t, connected, 4)
		assert.Zero(t, connected[0], "it was answered at once")
		assert.GreaterOrEqual(t, connected[1], time.Second+adsc.DefaultStableAfter)
		assert.Equal(t, 3, b.resets, "a stream that stood for a minute was not one of a row of failures")
	})
}

// TestPingsLessOftenIfTheServerSaysSo has a server of grpc-go's defaults, which ends connections that it is pinged on more
// often than every five minutes.
func TestPingsLessOftenIfTheServerSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		cfg.Backoff = retries(1000)
		streams := 0
		cfg.Hooks.Connected = func(string) { streams++ }
		cfg = bubbled(t, cfg, func(_ int, s stream) error {
			pause(s, 1000*time.Hour)
			return nil
		}, nil)
		stop, result := run(t, cfg)
		time.Sleep(100 * time.Hour)
		stop()
		require.ErrorIs(t, <-result, context.Canceled)
		assert.Less(t, streams, 10)
	})
}
