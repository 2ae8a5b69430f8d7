package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/client"
)

func adminOf(t *testing.T, h http.HandlerFunc) *client.Admin {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &client.Admin{Address: strings.TrimPrefix(s.URL, "http://"), Timeout: 10 * time.Second}
}

func TestGetAndPost(t *testing.T) {
	admin := adminOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"request": "` + r.Method + " " + r.URL.String() + `"}`))
	})
	var v struct{ Request string }
	page, err := admin.Get(t.Context(), "/debug/x", url.Values{"host": {"a b"}}, &v)
	require.NoError(t, err)
	assert.Equal(t, "GET /debug/x?host=a+b", v.Request)
	assert.JSONEq(t, `{"request": "GET /debug/x?host=a+b"}`, string(page))
	text, err := admin.Post(t.Context(), "/-/x", nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"request": "POST /-/x"}`, text)
}

func TestErrorsHaveAdvice(t *testing.T) {
	blocked := make(chan struct{})
	defer close(blocked)
	admin := adminOf(t, func(response http.ResponseWriter, request *http.Request) {
		switch request.URL.Path {
		case "/json":
			_, _ = response.Write([]byte("<html>"))
		case "/bad":
			http.Error(response, "want a host", http.StatusBadRequest)
		case "/gone":
			response.Header().Set("Content-Type", "text/html")
			response.WriteHeader(http.StatusBadGateway)
			_, _ = response.Write([]byte("<html>\n<body>much\n</html>"))
		case "/slow":
			<-blocked
		default:
			http.NotFound(response, request)
		}
	})
	get := func(path string) error {
		_, err := admin.Get(t.Context(), path, nil, new(any))
		return err
	}
	require.ErrorContains(t, get("/json"), admin.Address+"/json does not answer as a tributary does")
	require.EqualError(t, get("/gone"), admin.Address+
		" answers 502 Bad Gateway with text/html, and not as the admin server of a tributary does")
	require.EqualError(t, get("/bad"), admin.Address+": want a host")
	require.EqualError(t, get("/other"), admin.Address+
		" has no /other: it is no admin server of tributary, or an older one, or its pages are "+
		"switched off (admin.debug)")
	admin.Timeout = 50 * time.Millisecond
	require.EqualError(t, get("/slow"), "admin server "+admin.Address+": no answer within 50ms")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := admin.Post(ctx, "/slow", nil)
	require.ErrorIs(t, err, context.Canceled)

	admin.Address = "127.0.0.1:1"
	require.EqualError(t, get("/"), "no server listens on 127.0.0.1:1; give the admin address of tributary with --admin")
	admin.Address = "no:such:thing"
	require.ErrorContains(t, get("/"), "no:such:thing")
}
