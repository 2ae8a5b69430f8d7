package intake_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
)

// A server that answers 101 and then is silent does not hold a reader whose context has ended.
func TestBound_SwitchedProtocols(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close() //nolint:errcheck // of a test
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\n")
		<-end
	}))
	defer server.Close()
	defer close(end)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request) //nolint:bodyclose // below
	require.NoError(t, err)
	read := make(chan []byte, 1)
	go func() {
		text, _ := intake.Read(intake.Bound(response).Body, 100) //nolint:bodyclose // it is that of response
		_ = response.Body.Close()
		read <- text
	}()
	select {
	case text := <-read:
		require.Empty(t, text)
	case <-time.After(5 * time.Second):
		require.Fail(t, "the reader waits")
	}
}
