package adsc_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"tributary/adsc"
	"tributary/internal/testutil"
	"tributary/server/xds"
)

// TestRemoval_OfResourceRejectedInCompleteSet: the last good one of it stayed.
func TestRemoval_OfResourceRejectedInCompleteSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{reject: func(r *adsc.Response) error {
			for _, res := range r.Resources {
				if res.Version == "5" {
					return &adsc.RejectedError{Names: []string{res.Name}, Err: errRefused}
				}
			}
			return nil
		}}
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: h.handle})
		config.Mode, config.Backoff = adsc.Delta, retries(5)
		var brought []map[string]string
		config = bubbled(t, config, nil, func(n int, s deltaStream) error {
			switch n {
			case 0: // a first answer that is cut after its first part
				_ = s.SetHeader(chunked)
				if _, err := s.Recv(); err != nil {
					return err
				}
				if err := s.Send(deltaResponse(t, "n", "", "r@1")); err != nil {
					return err
				}
				_, _ = s.Recv()
				return errRestart
			case 1:
				if _, err := honest(t, s, "n", map[string]string{"a": "1", "r": "5"}); err != nil {
					return err
				}
				_, _ = s.Recv()
				return errRestart
			}
			r, err := honest(t, s, "n", map[string]string{"a": "1"})
			brought = append(brought, r.GetInitialResourceVersions())
			if err != nil {
				return err
			}
			pause(s, time.Hour)
			return nil
		}, allowPings)
		run(t, config)
		time.Sleep(time.Minute)
		synctest.Wait()
		t.Log(h.log, brought)
		assert.Equal(t, []string{"a"}, h.names(), "the server has no r any more")
	})
}

// TestResume_WithTooManyVersionsRecovers has servers that do not take all the versions that a client brings along in a request.
func TestResume_WithTooManyVersionsRecovers(t *testing.T) {
	coming := func(t *testing.T, address, typeURL string, n int) {
		synced, connected := make(chan struct{}, 10), make(chan struct{}, 10)
		config := quiet(address, adsc.Subscription{TypeURL: typeURL, Handler: accept})
		config.Mode, config.ExhaustedWait = adsc.Delta, 10*time.Millisecond
		config.Backoff = func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) }
		config.Hooks.Connected = func(string) { connected <- struct{}{} }
		failed := make(chan error, 1)
		config.Hooks.Failed = func(err error, _ time.Duration) {
			select {
			case failed <- err:
			default:
			}
		}
		var healed []int
		config.Hooks.Compared = func(_ string, n int) { healed = append(healed, n) }
		got := 0
		config.Hooks.Response = func(r *adsc.Response, _ error) {
			if got += len(r.Resources); !r.More {
				synced <- struct{}{}
			}
		}
		client, err := adsc.New(config)
		require.NoError(t, err)
		stop, ended := start(t, client)
		receive(t, connected)
		receive(t, synced)
		client.Reconnect()
		require.True(t, adsc.Exhausted(receive(t, failed)))
		receive(t, connected)
		receive(t, synced)
		stop()
		require.ErrorIs(t, receive(t, ended), context.Canceled)
		assert.Equal(t, 2*n, got)
		assert.Equal(t, []int{0}, healed)
	}
	t.Run("of gRPC's own limit", func(t *testing.T) {
		const n = 50_000
		coming(t, serveDelta(t, func(_ int, s deltaStream) error {
			r, err := s.Recv()
			if err != nil {
				return err
			}
			if len(r.GetInitialResourceVersions()) == 0 {
				out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeA, Nonce: "n", SystemVersionInfo: "v"}
				for i := range n {
					out.Resources = append(out.Resources, &discoveryv3.Resource{Name: fmt.Sprintf("%080d", i), Version: "0123456789abcdef"})
				}
				if err := s.Send(out); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return nil
		}), typeA, n)
	})
	t.Run("of a tributary", func(t *testing.T) {
		const n = 11_000
		coll := xds.NewCollection(xds.TypeOf(greetings), xds.Debounce{})
		var entries []*xds.Entry
		for i := range n {
			entries = append(entries, entry(fmt.Sprintf("%0100d", i), "1", "x"))
		}
		coll.Apply(xds.Commit{Put: entries})
		coll.MarkSynced()
		engine := xds.NewServer(catalog{coll}, xds.Options{Limits: xds.Limits{NamesPerStream: n - 1}})
		server := grpc.NewServer(engine.ServerOptions()...)
		engine.Register(server)
		lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		testutil.ServeGRPC(t, lis, server)
		coming(t, lis.Addr().String(), greetings, n)
	})
}

// TestRunAgain_AfterStopInHandler: the handler's success counts.
func TestRunAgain_AfterStopInHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{}
		var cancel context.CancelFunc
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: func(ctx context.Context, r *adsc.Response) error {
			err := h.handle(ctx, r)
			if len(h.log) == 2 {
				cancel()
			}
			return err
		}})
		config.Mode, config.Backoff = adsc.Delta, retries(5)
		config = bubbled(t, config, nil, func(n int, s deltaStream) error {
			content := map[string]string{"a": "1"}
			if _, err := honest(t, s, "n", content); err != nil {
				return err
			}
			if n == 0 {
				_, _ = s.Recv()
				if err := s.Send(deltaResponse(t, "n2", "v", "b@1")); err != nil {
					return err
				}
			}
			pause(s, time.Hour)
			return nil
		}, allowPings)
		client, err := adsc.New(config)
		require.NoError(t, err)
		for range 2 {
			var ctx context.Context
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			_ = client.Run(ctx)
			cancel()
		}
		t.Log(h.log)
		assert.Equal(t, []string{"a"}, h.names(), "b has gone between the two")
	})
}
