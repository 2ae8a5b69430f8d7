package admin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"tributary/server/admin"
	"tributary/sources"
)

// fakeConfig is a configuration that counts how often it was read.
type fakeConfig struct {
	status  admin.ConfigStatus
	reloads int
	refuses string
	caller  string // of the last reload
}

func (c *fakeConfig) Status() admin.ConfigStatus { return c.status }
func (c *fakeConfig) Reload(_ context.Context, caller string) (string, error) {
	c.caller = caller
	if c.refuses != "" {
		return "", errors.New(c.refuses)
	}
	c.reloads++
	return "a.yaml is in force", nil
}

func post(t *testing.T, server *admin.Server, path string, header http.Header) (status int, body string) {
	t.Helper()
	responseRecorder := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
	req.Header = header
	server.Handler().ServeHTTP(responseRecorder, req)
	return responseRecorder.Code, responseRecorder.Body.String()
}

func TestReload_AppliesOrRefuses(t *testing.T) {
	w := &world{}
	server := newServer(w)
	status, body := post(t, server, "/-/reload", http.Header{})
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "a.yaml is in force\n", body)
	assert.Equal(t, "somebody, from 192.0.2.1:1234", w.config.caller)

	w.config.refuses = "a.yaml:1:1: no"
	status, body = post(t, server, "/-/reload", http.Header{})
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Equal(t, "a.yaml:1:1: no\n", body)

	status, _ = get(t, server, "/-/reload")
	assert.Equal(t, http.StatusMethodNotAllowed, status)
	assert.Equal(t, 1, w.config.reloads)
}

func TestReload_NamesUnreadSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{sources: []sources.Status{{Name: "slow"}}}
		_, body := post(t, newServer(w), "/-/reload", http.Header{})
		assert.Equal(t, "a.yaml is in force\nnot read yet: slow; a restart would wait for it before anything is served "+
			"(required: false serves the others without it)\n", body)
	})
}

func TestHandler_RefusesPostsOfOtherOrigins(t *testing.T) {
	w := &world{}
	status, output := post(t, newServer(w), "/-/reload", http.Header{
		"Origin":         {"https://elsewhere.example"},
		"Sec-Fetch-Site": {"cross-site"},
	})
	assert.Equal(t, "POST /-/reload comes from a web page of https://elsewhere.example, and is done only for pages of example.com, and for "+
		"programs that send no Origin\n", output)
	assert.Equal(t, http.StatusForbidden, status)
	assert.Zero(t, w.config.reloads)
}
