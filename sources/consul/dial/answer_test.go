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
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := []byte(strings.Repeat("x", 1<<20))
		_, _ = w.Write([]byte(`{"`))
		for r.Context().Err() == nil {
			n, _ := w.Write(page)
			sent.Add(int64(n))
		}
	}))
	t.Cleanup(s.Close)
	a, err := Parse("consul", "consul://"+s.Listener.Addr().String())
	require.NoError(t, err)
	c, err := New(a, Settings{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	require.Equal(t, longestAnswer, c.transport.longest)
	c.transport.longest = 3 << 20
	_, _, err = c.Catalog().Services(nil)
	require.ErrorContains(t, err, "longer than 3 MiB")
	require.Equal(t, Garbled, Classify(err).Kind)
	require.Less(t, sent.Load(), int64(100<<20), "with the bytes in buffers of the system")
}
