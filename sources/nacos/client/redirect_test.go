package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/sources/nacos/client"
	"tributary/sources/nacos/nacostest"
)

// TestRedirects_NotFollowed has a Nacos that redirects requests to another host, which must not get the password or the token.
func TestRedirects_NotFollowed(t *testing.T) {
	foreign := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		assert.Fail(t, "the other host is asked", "%s %s %s %s", r.Method, r.URL, body, r.Header.Get("accessToken"))
	}))
	t.Cleanup(foreign.Close)
	for _, status := range []int{http.StatusFound, http.StatusPermanentRedirect} {
		for _, redirected := range []string{"/nacos/v1/auth/login", "/nacos/v1/cs/configs"} {
			t.Run(fmt.Sprint(redirected, status), func(t *testing.T) {
				server := nacostest.Start(t)
				put(server, "orders", "1", "10.0.0.1")
				web := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case redirected:
						http.Redirect(response, r, foreign.URL+r.URL.Path, status)
					case "/nacos/v1/auth/login":
						_, _ = io.WriteString(response, `{"accessToken":"token","tokenTtl":18000}`)
					default:
						http.Error(response, "no such page", http.StatusNotFound)
					}
				}))
				t.Cleanup(web.Close)
				c, l := follow(t, server.Beside(web, "me:p%40ss@"), client.Watched{})
				l.awaitInstances(t, orders, 1)
				var err error
				require.Eventually(t, func() bool {
					_, err = c.Configs(t.Context(), "DEFAULT_GROUP")
					return err == nil || err.Error() != "there is no connection"
				}, 20*time.Second, time.Millisecond)
				require.Error(t, err)
			})
		}
	}
}
