package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/aggregate"
	"tributary/server/identity"
	"tributary/sources"
)

// reloads is a configuration that counts its reloads.
type reloads int

func (r *reloads) Reload(context.Context, string) (string, error) { *r++; return "", nil }
func (r *reloads) Status() ConfigStatus                           { return ConfigStatus{} }

func TestHandler_AuthorizesChanges(t *testing.T) {
	var config reloads
	var authorized []string // the address and the headers of the last change
	var refusal error
	handler := New(Options{
		View: aggregate.New(), Sources: sources.NewSupervisor(sources.Options{}), Config: &config,
		Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		Authorize: func(client *identity.Identity, headers []string, needsRight bool) error {
			if !needsRight {
				return nil
			}
			authorized = append([]string{client.Address.String()}, headers...)
			return refusal
		},
	}).Handler()
	ask := func(method string, local net.Addr) (code int, challenge string) {
		request := httptest.NewRequest(method, "/-/reload", nil)
		request.Host, request.RemoteAddr = "localhost", "10.1.2.3:4"
		request.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey, local)))
		return w.Code, w.Header().Get("WWW-Authenticate")
	}
	loopback, socket, remote := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.UnixAddr{Net: "unix"}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for _, c := range []struct {
		local     net.Addr
		refusal   error
		code      int
		challenge string
	}{
		{loopback, status.Error(codes.Unauthenticated, "no"), 200, ""},
		{socket, status.Error(codes.Unauthenticated, "no"), 200, ""},
		{remote, nil, 200, ""},
		{remote, status.Error(codes.Unauthenticated, "no"), 401, "Bearer"},
		{remote, status.Error(codes.PermissionDenied, "no"), 403, ""},
		{nil, status.Error(codes.Unauthenticated, "no"), 401, "Bearer"},
	} {
		reloadsBefore := config
		refusal = c.refusal
		code, challenge := ask(http.MethodPost, c.local)
		require.Equal(t, c.code, code)
		require.Equal(t, c.challenge, challenge)
		require.Equal(t, code == 200, config > reloadsBefore)
	}
	require.Equal(t, []string{"10.1.2.3", "Bearer x"}, authorized)
	code, _ := ask(http.MethodGet, remote)
	require.Equal(t, http.StatusMethodNotAllowed, code, "the path has no GET, for any client")
}

func TestHandler_NoDebugAndNoProfiles(t *testing.T) {
	get := func(opts Options, path string) int {
		opts.Log, opts.Registry, opts.View = slog.New(slog.DiscardHandler), prometheus.NewRegistry(), aggregate.New()
		w := httptest.NewRecorder()
		New(opts).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		require.Equal(t, 200, get(Options{}, path))
		require.Equal(t, 404, get(Options{NoProfiles: true}, path))
		require.Equal(t, 404, get(Options{NoDebug: true}, path))
	}
	require.Equal(t, 200, get(Options{NoProfiles: true}, "/debug/"))
	for _, p := range New(Options{Registry: prometheus.NewRegistry()}).allPages() {
		if len(p.Path) > 7 && p.Path[:7] == "/debug/" {
			require.Equal(t, 404, get(Options{NoDebug: true}, p.Path), p.Path)
		}
	}
	require.Equal(t, 200, get(Options{NoDebug: true}, "/-/healthy"))
	require.Equal(t, 200, get(Options{NoDebug: true}, "/metrics"))
}

func TestHandler_RefusesOtherSites(t *testing.T) {
	handler := refuseOtherSites(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(path, site, mode string) int {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Header.Set("Sec-Fetch-Site", site)
		request.Header.Set("Sec-Fetch-Mode", mode)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		return w.Code
	}
	for _, site := range []string{"cross-site", "same-site"} {
		for _, path := range []string{"/debug/configz", "/debug/pprof/profile", "/debug/page/events", "/debug/"} {
			require.Equal(t, http.StatusForbidden, ask(path, site, "no-cors"), path)
			require.Equal(t, http.StatusForbidden, ask(path, site, "navigate"), path)
		}
		require.Equal(t, http.StatusForbidden, ask("/", site, "no-cors"))
		require.Equal(t, http.StatusForbidden, ask("/metrics", site, "cors"))
		require.Equal(t, http.StatusOK, ask("/", site, "navigate"), "a link leads to the page")
	}
	for _, site := range []string{"", "none", "same-origin"} {
		require.Equal(t, http.StatusOK, ask("/debug/configz", site, "navigate"), site)
	}
}
