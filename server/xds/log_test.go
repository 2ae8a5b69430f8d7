package xds

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/testutil"
)

func TestConnections_Logged(t *testing.T) {
	var buffer testutil.Buffer
	fixture := newFixture(t, Options{Log: buffer.Logger()})
	fixture.set(testType, "a")
	client := fixture.delta()
	client.Ask(testType)
	client.Expect(testType, "a@1")
	require.Contains(t, buffer.String(), `msg="client connected" node_id=`)
	require.Contains(t, buffer.String(), "variant=delta")
	client.Close()
	eventually(t, func() bool { return strings.Contains(buffer.String(), `msg="client disconnected"`) })
	require.Contains(t, buffer.String(), `why="client closed the stream"`)

	fixture.sotw().Close()
	eventually(t, func() bool { return len(fixture.server.Clients()) == 0 })
	require.Equal(t, 1, strings.Count(buffer.String(), "client disconnected"), "a client without requests has no log line")
}

func TestEndReason(t *testing.T) {
	require.Equal(t, "client closed the stream", whyEnded(nil))
	require.Equal(t, "client closed the stream", whyEnded(io.EOF))
	require.Equal(t, "the connection ended, or the client ended the stream", whyEnded(status.Error(codes.Canceled, "context canceled")))
	require.Equal(t, "x", whyEnded(errors.New("x")))
}

// Errors to clients and in the log do not have gRPC's words around them.
func TestEndReason_OmitsGRPCPrefix(t *testing.T) {
	require.Equal(t, "server is shutting down", whyEnded(errDraining))
	require.Equal(t, "ended: a question too many", whyEnded(fmt.Errorf("ended: %w",
		status.Error(codes.ResourceExhausted, "a question too many"))))
}

// Above the rate, the next line has the number of suppressed lines.
func TestConnectionLog_CountsSuppressedLines(t *testing.T) {
	var buffer bytes.Buffer
	v := connectionLog{limiter: rate.NewLimiter(0, 1)}
	logger := slog.New(slog.NewTextHandler(&buffer, nil))
	for range 4 {
		v.log(logger, "client connected")
	}
	require.Equal(t, 1, strings.Count(buffer.String(), "\n"))
	v.limiter.SetBurst(2)
	v.limiter.SetLimit(rate.Inf)
	v.log(logger, "client disconnected")
	v.log(logger, "client connected")
	require.Equal(t, 1, strings.Count(buffer.String(), "suppressed=3\n"), buffer.String())
}
