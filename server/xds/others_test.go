package xds

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// asking is a stream on which there is always another request.
type asking struct {
	grpc.ServerStream
	ctx context.Context
}

func (a asking) Context() context.Context { return a.ctx }
func (asking) RecvMsg(any) error          { return nil }

// The requests on one stream of another service are as many a second as streams that an address may open.
func TestRequestsToOtherServicesAreSpacedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{opens: spacing{perSecond: 100}}
		ctx, cancel := context.WithCancel(t.Context())
		stream := &otherStream{asking{ctx: ctx}, s, "10.0.0.1", true}
		began := time.Now()
		for range 311 { // of which 10 are the burst, and one came with the stream
			require.NoError(t, stream.RecvMsg(nil))
		}
		require.Equal(t, 3*time.Second, time.Since(began).Round(100*time.Millisecond))
		cancel()
		require.Error(t, stream.RecvMsg(nil))
	})
}
