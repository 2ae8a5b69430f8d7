package transport

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// asking is a stream on which there is always another request.
type asking struct {
	grpc.ServerStream
	ctx context.Context
}

func (a asking) Context() context.Context { return a.ctx }
func (asking) RecvMsg(any) error          { return nil }

// The requests on one stream of another service are as many a second as streams that an address may open.
func TestOtherServices_RequestsSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewLimiter(noEngine{}, Limits{StreamsPerSecond: 100}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		stream := &limitedStream{ServerStream: asking{ctx: ctx}, limiter: s, host: "10.0.0.1", otherService: true}
		began := time.Now()
		for range 311 { // ten come at once, and one came with the stream
			require.NoError(t, stream.RecvMsg(nil))
		}
		require.Equal(t, 3*time.Second, time.Since(began).Round(100*time.Millisecond))
		cancel()
		require.Error(t, stream.RecvMsg(nil))
	})
}

// An address has so many streams of other services, and others have theirs. Calls are not counted.
func TestOtherServices_StreamsBounded(t *testing.T) {
	s := NewLimiter(noEngine{}, Limits{RefusalDelay: -1, StreamsPerSecond: -1}, slog.New(slog.DiscardHandler))
	peerContext := func(ip string) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}})
	}
	var open func(n int) error
	open = func(n int) error {
		if n == 0 {
			require.NoError(t, s.interceptStream(nil, asking{ctx: peerContext("10.0.0.2")}, nil, func(any, grpc.ServerStream) error { return nil }))
			_, err := s.interceptCall(peerContext("10.0.0.1"), nil, nil, func(context.Context, any) (any, error) { return nil, nil })
			return err
		}
		return s.interceptStream(nil, asking{ctx: peerContext("10.0.0.1")}, nil, func(any, grpc.ServerStream) error { return open(n - 1) })
	}
	require.NoError(t, open(otherStreamsPerPeer))
	require.Equal(t, codes.ResourceExhausted, status.Code(open(otherStreamsPerPeer+1)))
	require.Empty(t, s.otherStreams)
	require.Empty(t, s.perPeer)
}
