package dial

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEndlessAnswer_Refused(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		page := []byte(strings.Repeat("x", 1<<20))
		_, _ = response.Write([]byte(`{"`))
		for r.Context().Err() == nil {
			n, _ := response.Write(page)
			sent.Add(int64(n))
		}
	}))
	t.Cleanup(server.Close)
	a, err := Parse("consul", "consul://"+server.Listener.Addr().String())
	require.NoError(t, err)
	client, err := New(a, Settings{})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.Equal(t, longestAnswer, client.transport.longest)
	client.transport.longest = 3 << 20
	_, _, err = client.Catalog().Services(nil)
	require.ErrorContains(t, err, "longer than 3 MiB")
	require.Equal(t, Garbled, Classify(err).Kind)
	require.Less(t, sent.Load(), int64(100<<20), "with the bytes in buffers of the system")
}
