package adsc_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/internal/xdstest"
	"tributary/server/xds"
)

// TestResume_ReportsRemovalOfRejectedResource has a resource that was rejected in a complete set while its last good
// version stayed. Its removal is reported to the next stream.
func TestResume_ReportsRemovalOfRejectedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &cache{reject: func(r *adsc.Response) error {
			for _, res := range r.Resources {
				if res.Version == "5" {
					return &adsc.RejectedError{Names: []string{res.Name}, Err: errRefused}
				}
			}
			return nil
		}}
		server := xdstest.DeltaInMemory(t, allowPings)
		config := quietDelta("", subscribe(typeA, h.handle))
		inMemory(&config, server.Dial...)
		run(t, config)
		stream := server.Next() // a first answer that is cut after its first part
		require.NoError(t, stream.SetHeader(chunked))
		stream.Receive()
		stream.Exchange(deltaResponse(t, "n", "", "r@1"))
		stream.End(errRestart)
		stream = server.Next()
		stream.Exchange(initialResponse(t, stream.Receive(), "n", map[string]string{"a": "1", "r": "5"}))
		stream.End(errRestart)
		stream = server.Next()
		stream.Exchange(initialResponse(t, stream.Receive(), "n", map[string]string{"a": "1"}))
		synctest.Wait()
		assert.Equal(t, []string{"a"}, h.names(), "the server has no r any more")
	})
}

// TestResume_RecoversFromTooManyVersions has servers that refuse the number of versions in a request.
func TestResume_RecoversFromTooManyVersions(t *testing.T) {
	resumes := func(t *testing.T, address, typeURL string, n int) {
		synced, connected, failed := make(chan struct{}, 10), make(chan struct{}, 10), make(chan error, 10)
		config := quietDelta(address, subscribe(typeURL, accept))
		config.ExhaustedWait = 10 * time.Millisecond
		config.Backoff = func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) }
		config.Hooks.Connected = func(string) { connected <- struct{}{} }
		config.Hooks.Failed = func(err error, _ time.Duration) { failed <- err }
		var differences []int
		config.Hooks.Compared = func(_ string, n int) { differences = append(differences, n) }
		got := 0
		config.Hooks.Response = func(r *adsc.Response, _ error) {
			if got += len(r.Resources); !r.More {
				synced <- struct{}{}
			}
		}
		client := run(t, config)
		xdstest.Receive(t, connected)
		xdstest.Receive(t, synced)
		client.Reconnect()
		require.True(t, adsc.Exhausted(receive(t, failed)))
		xdstest.Receive(t, connected)
		xdstest.Receive(t, synced)
		client.cancel()
		assert.Equal(t, 2*n, got)
		assert.Equal(t, []int{0}, differences)
	}
	t.Run("of gRPC's own limit", func(t *testing.T) {
		const n = 50_000
		full := deltaResponse(t, "n", "v")
		for i := range n {
			full.Resources = append(full.Resources, &discoveryv3.Resource{
				Name: fmt.Sprintf("%080d", i), Version: "0123456789abcdef",
			})
		}
		server := xdstest.Server{Delta: func(_ int, s xdstest.DeltaStream) error {
			r, err := s.Recv()
			if err != nil {
				return err
			}
			if len(r.GetInitialResourceVersions()) == 0 {
				if err := s.Send(full); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return nil
		}}
		resumes(t, server.Serve(t), typeA, n)
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
		resumes(t, xdstest.ServeEngine(t, engine), greetings, n)
	})
}

// TestRun_ResumesAfterStopInHandler: a response counts as handled, even if its handler ended Run.
func TestRun_ResumesAfterStopInHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &cache{}
		var cancel context.CancelFunc
		server := xdstest.DeltaInMemory(t, allowPings)
		config := quietDelta("", subscribe(typeA, func(ctx context.Context, r *adsc.Response) error {
			err := h.handle(ctx, r)
			if len(h.log) == 2 {
				cancel()
			}
			return err
		}))
		inMemory(&config, server.Dial...)
		client, err := adsc.New(config)
		require.NoError(t, err)
		for i := range 2 {
			var ctx context.Context
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			ended := make(chan error)
			go func() { ended <- client.Run(ctx) }()
			stream := server.Next()
			stream.Exchange(initialResponse(t, stream.Receive(), "n", map[string]string{"a": "1"}))
			if i == 0 {
				stream.Send(deltaResponse(t, "n2", "v", "b@1"))
			}
			require.Error(t, <-ended)
			cancel()
		}
		assert.Equal(t, []string{"a"}, h.names(), "b has gone between the two")
	})
}
