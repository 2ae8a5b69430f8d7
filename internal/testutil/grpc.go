package testutil

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
)

// ServeGRPC serves the server on the listener until the test ends, or stop is called.
func ServeGRPC(t testing.TB, lis net.Listener, server *grpc.Server) (stop func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-ended; !errors.Is(err, grpc.ErrServerStopped) { // it was stopped before it began
			assert.NoError(t, err)
		}
	})
	t.Cleanup(stop)
	return stop
}
