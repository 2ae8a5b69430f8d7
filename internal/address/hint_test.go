package address

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHint has one side speak TLS, and the other not.
func TestHint(t *testing.T) {
	plain, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	defer plain.Close()
	defer secure.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+plain.Listener.Addr().String(), http.NoBody)
	require.NoError(t, err)
	_, err = secure.Client().Do(request) //nolint:bodyclose // there is none
	require.ErrorContains(t, Hint(err, true), "(it does not speak TLS: see tlsSettings)")

	require.EqualError(t, Hint(io.EOF, false), "EOF (it may speak TLS alone: see tlsSettings)")
	require.ErrorIs(t, Hint(io.EOF, false), io.EOF)
	require.EqualError(t, Hint(errors.New("malformed HTTP response \"\\x15\\x03\""), false),
		"malformed HTTP response \"\\x15\\x03\" (it may speak TLS alone: see tlsSettings)")
	require.Equal(t, io.EOF, Hint(io.EOF, true), "the connection may have been closed for any reason")
	require.Equal(t, context.Canceled, Hint(context.Canceled, false))
	require.NoError(t, Hint(nil, true))
}
