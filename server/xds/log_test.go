package xds

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/logtest"
)

func TestClientsThatComeAndGoAreLogged(t *testing.T) {
	var log logtest.Buffer
	w := newWorld(t, Options{Log: log.Logger()})
	w.set(testType, "a")
	c := w.delta(testType)
	c.ask(testType)
	c.expect(testType, "a@1")
	require.Contains(t, log.String(), `msg="client connected" node_id=`)
	require.Contains(t, log.String(), "variant=delta")
	require.NoError(t, c.close())
	eventually(t, func() bool { return strings.Contains(log.String(), `msg="client disconnected"`) })
	require.Contains(t, log.String(), `why="it is done"`)

	require.NoError(t, w.sotw(testType).close())
	eventually(t, func() bool { return len(w.server.Clients()) == 0 })
	require.Equal(t, 1, strings.Count(log.String(), "client disconnected"), "who said nothing is not worth a line")
}

func TestWhyAStreamEnded(t *testing.T) {
	require.Equal(t, "it is done", whyEnded(nil))
	require.Equal(t, "it is done", whyEnded(io.EOF))
	require.Equal(t, "the connection ended, or the client ended the stream", whyEnded(status.Error(codes.Canceled, "context canceled")))
	require.Equal(t, errDraining.Error(), whyEnded(errDraining))
	require.Equal(t, "x", whyEnded(errors.New("x")))
}
