package adsc_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

// A server that reads only after it has written every response must not deadlock with the client.
func TestServer_WritesEveryResponseBeforeItReads(t *testing.T) {
	const responses = 3000
	nonce := func(i int) string { return fmt.Sprintf("%0100d", i) } // so that acknowledgements fill the windows
	last := nonce(responses - 1)
	t.Run("SotW", func(t *testing.T) {
		acknowledged := make(chan string, 1)
		server := xdstest.Server{SotW: func(_ int, s xdstest.SotWStream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			for i := range responses {
				if err := s.Send(response(t, typeA, fmt.Sprint(i), nonce(i), "a")); err != nil {
					return err
				}
			}
			for n := 1; ; n++ {
				discoveryRequest, err := s.Recv()
				if err != nil {
					return err
				}
				if discoveryRequest.GetResponseNonce() == last {
					acknowledged <- discoveryRequest.GetVersionInfo()
				}
			}
		}}
		address := server.Serve(t, grpc.StaticStreamWindowSize(1<<16))
		run(t, quiet(address, subscribe(typeA, accept)))
		assert.Equal(t, fmt.Sprint(responses-1), xdstest.Receive(t, acknowledged))
	})
	t.Run("delta", func(t *testing.T) {
		requests := make(chan *discoveryv3.DeltaDiscoveryRequest, responses)
		server := xdstest.Server{Delta: func(_ int, s xdstest.DeltaStream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			for i := range responses {
				if err := s.Send(deltaResponse(t, nonce(i), "v", fmt.Sprintf("a@%d", i))); err != nil {
					return err
				}
			}
			for range responses {
				r, err := s.Recv()
				if err != nil {
					return err
				}
				requests <- r
			}
			<-s.Context().Done()
			return nil
		}}
		address := server.Serve(t, grpc.StaticStreamWindowSize(1<<16))
		handled := 0
		run(t, quietDelta(address, subscribe(typeA, func(context.Context, *adsc.Response) error {
			if handled++; handled == responses/2 {
				return errRefused
			}
			return nil
		})))
		for i := range responses {
			r := xdstest.Receive(t, requests)
			require.Equal(t, nonce(i), r.GetResponseNonce(), "each is answered, in order")
			require.Equal(t, i == responses/2-1, r.GetErrorDetail() != nil, "and the rejection is that of its response")
		}
	})
}

// TestUnreadRequests_BoundedMemory: the queue of requests is bounded.
func TestUnreadRequests_BoundedMemory(t *testing.T) {
	const n = 100
	server := xdstest.Server{Delta: func(_ int, s xdstest.DeltaStream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		for i := range n {
			if err := s.Send(deltaResponse(t, fmt.Sprint(i, strings.Repeat("x", 1<<20)), "v", "a@1")); err != nil {
				return err
			}
		}
		<-s.Context().Done()
		return nil
	}}
	handled := make(chan struct{}, n)
	config := quietDelta(server.Serve(t), subscribe(typeA, accept))
	config.Hooks.Response = func(*adsc.Response, error) { handled <- struct{}{} }
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc >> 20
	}
	before := heap()
	run(t, config)
	for range n {
		xdstest.Receive(t, handled)
	}
	assert.Less(t, heap(), before+60)
}

// TestSlowHandler_SlowsServer has a server send without waiting for answers.
func TestSlowHandler_SlowsServer(t *testing.T) {
	const responses, size = 200, 1 << 20
	var sent atomic.Int64
	content := string(make([]byte, size))
	server := xdstest.Server{SotW: func(_ int, s xdstest.SotWStream) error {
		r := response(t, typeA, "v", "n", content)
		for range responses {
			if err := s.Send(r); err != nil {
				return err
			}
			sent.Add(1)
		}
		<-s.Context().Done()
		return nil
	}}
	result := make(chan int64)
	var handled, lead int64
	config := quiet(server.Serve(t), subscribe(typeA, func(context.Context, *adsc.Response) error {
		lead = max(lead, sent.Load()-handled)
		if handled++; handled == responses {
			result <- lead
		}
		return nil
	}))
	config.DialOptions = []grpc.DialOption{
		grpc.WithStaticStreamWindowSize(1 << 16), grpc.WithStaticConnWindowSize(1 << 16),
	}
	run(t, config)
	require.LessOrEqual(t, xdstest.Receive(t, result), int64(4),
		"responses that the server was ahead: one handled, one read, and a few in transit")
}
