package kube

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestToken_IsNotSentToRedirects: a server that sends us to another one does not have that get the token.
func TestToken_IsNotSentToRedirects(t *testing.T) {
	got := ""
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		req *http.Request,
	) {
		got += req.Header.Get("Authorization")
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, elsewhere.URL+req.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	file, original := filepath.Join(t.TempDir(), "kubeconfig"), istioServer(t)
	text := strings.Replace(original.Kubeconfig("{token: secret}"), "http://"+original.Host(), server.URL, 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	client, err := cluster{kubeconfig: file}.connect()
	require.NoError(t, err)
	_, err = client.page(t.Context(), "/api/v1/services", nil)
	require.ErrorContains(t, err, "307")
	require.Empty(t, got)
}

// listPages lists pages without end. Each has the item, with the number of the page for PAGE.
func listPages(t *testing.T, run *run, item string) error {
	page := 0
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		page++
		_, _ = io.WriteString(response, `{"kind": "ServiceEntryList",
			"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [`+
			strings.ReplaceAll(item, "PAGE", strconv.Itoa(page))+`]}`)
	}))
	defer server.Close()
	return run.streams[0].list(t.Context(), &api{client: server.Client(), base: server.URL}, "/x")
}

// TestList_WithoutEnd has ever new pages, or the first page again and again, as from a proxy that drops the token of
// the next page.
func TestList_WithoutEnd(t *testing.T) {
	for name, want := range map[string]string{
		"a": "the list has shop/a twice", "aPAGE": "the list has more than 4000 pages",
	} {
		run := newRun(quick(t, istioServer(t), Settings{}), nil)
		item := `{"metadata": {"namespace": "shop", "name": "` + name + `", "resourceVersion": "5"}}`
		require.ErrorContains(t, listPages(t, run, item), want)
	}
}

// TestObjectsOfOthers: an answer with objects that were not requested, or with impossible names, is ignored.
func TestObjectsOfOthers(t *testing.T) {
	for _, tt := range [][2]string{{"bank", "a"}, {"shop", ""}, {"shop", "a/b"}, {"shop/a", "b"}} {
		t.Run(tt[0]+" "+tt[1], func(t *testing.T) {
			run := newRun(quick(t, istioServer(t), Settings{Namespaces: []string{"shop"}}), nil)
			stream := run.streams[0]
			object := `{"metadata": {"namespace": "` + tt[0] + `", "name": "` + tt[1] + `", "resourceVersion": "5"}}`
			require.ErrorContains(t, listPages(t, run, object), "it cannot be one of ")
			require.Error(t, stream.applyEvent("ADDED", []byte(object)))
			require.Error(t, stream.applyEvent("DELETED", []byte(object)))
			require.Empty(t, run.pending)
			require.NoError(t, stream.applyEvent("BOOKMARK", []byte(`{"metadata": {"resourceVersion": "8"}}`)))
			require.ErrorIs(t, stream.applyEvent("BOOKMARK", []byte(`{"metadata": {"resourceVersion": "7"}}`)), errOlder)
		})
	}
}
