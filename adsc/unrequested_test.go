package adsc

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Endless responses of unrequested types do not fill the log.
func TestUnrequestedResponses_LoggedOnce(t *testing.T) {
	var buffer bytes.Buffer
	c := &Client{cfg: Config{Log: slog.New(slog.NewTextHandler(io.Writer(&buffer), nil))}}
	s := newStream(t.Context(), c, "server", nil)
	for range 1000 {
		require.NoError(t, s.handle(&serverResponse{Response: Response{TypeURL: strings.Repeat("a", 100)}}))
	}
	require.Equal(t, 1, strings.Count(buffer.String(), "\n"))
}
