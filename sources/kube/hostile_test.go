package kube

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '"+server.URL+"'}}]\n"+
		"users: [{name: u, user: {token: secret}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"), 0o600))
	client, err := cluster{kubeconfig: file}.connect()
	require.NoError(t, err)
	_, err = client.page(t.Context(), "/api/v1/services", nil)
	require.ErrorContains(t, err, "307")
	require.Empty(t, got)
}

// TestObjectsOfOthers: an answer with objects that were not requested, or with impossible names, is ignored.
func TestObjectsOfOthers(t *testing.T) {
	for _, tt := range [][2]string{{"bank", "a"}, {"shop", ""}, {"shop", "a/b"}, {"shop/a", "b"}} {
		t.Run(tt[0]+" "+tt[1], func(t *testing.T) {
			run := newRun(quick(t, istioServer(t), Settings{Namespaces: []string{"shop"}}), nil)
			stream := run.streams[0]
			object := `{"metadata": {"namespace": "` + tt[0] + `", "name": "` + tt[1] + `", "resourceVersion": "5"}}`
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"kind": "ServiceEntryList", "metadata": {"resourceVersion": "7"}, "items": [` + object + `]}`))
			}))
			defer server.Close()
			require.Error(t, stream.list(t.Context(), &api{client: server.Client(), base: server.URL}, "/x"))
			require.Error(t, stream.applyEvent("ADDED", []byte(object)))
			require.Error(t, stream.applyEvent("DELETED", []byte(object)))
			require.Empty(t, run.pending)
			require.NoError(t, stream.applyEvent("BOOKMARK", []byte(`{"metadata": {"resourceVersion": "8"}}`)))
			require.ErrorIs(t, stream.applyEvent("BOOKMARK", []byte(`{"metadata": {"resourceVersion": "7"}}`)), errOlder)
		})
	}
}
