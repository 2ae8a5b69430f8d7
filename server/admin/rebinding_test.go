package admin_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHandler_RefusesDNSRebinding(t *testing.T) {
	handler := newServer(&world{}).Handler()
	ask := func(local net.IP, host string) int {
		r := httptest.NewRequest(http.MethodGet, "/-/healthy", nil)
		r.Host = host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: local})))
		return w.Code
	}
	name, err := os.Hostname()
	require.NoError(t, err)
	loopback, remote := net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)
	for _, host := range []string{
		"localhost", "LOCALHOST:16014", "localhost.", "127.0.0.1:16014", "[::1]:16014", "[::1]", "10.1.2.3", "",
		name,
	} {
		require.Equal(t, http.StatusOK, ask(loopback, host), host)
	}
	for _, host := range []string{"evil.example", "evil.example:16014", "localhost.evil.example", "127.0.0.1.evil.example:16014"} {
		require.Equal(t, http.StatusMisdirectedRequest, ask(loopback, host), host)
	}
	require.Equal(t, http.StatusOK, ask(remote, "mesh-1.example:16014"), "any name of a remote host is allowed")
}
