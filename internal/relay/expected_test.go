package relay

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/internal/xdstest"
	"tributary/server/verify"
	"tributary/server/xds"
)

// expected requests the resources of an Envoy with this node.
func (r *rig) expected(t *testing.T, node string) (status int, text string) {
	t.Helper()
	page := "http://" + r.Admin().String() + "/debug/expected?node=" + url.QueryEscape(node)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// TestExpected_Node: access rules decide on the expected configuration of a node, so the node must be connected. The
// question itself makes no client.
func TestExpected_Node(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("shop", "a", 80)+entry("other", "b", 80))
	configured(t, dir, "name: rules, address: 'fs://"+dir+"/rules'")
	rig := start(t, dir)
	rig.awaitReady(t)
	var status int
	var text string
	eventually(t, func() error { // the translation of a changed view takes a moment
		if status, text = rig.expected(t, `{"id": "web"}`); status != http.StatusOK {
			return errors.New(text)
		}
		return nil
	})
	var expected verify.Expected
	require.NoError(t, json.Unmarshal([]byte(text), &expected))
	require.False(t, expected.Connected)
	require.Contains(t, text, "a.example")
	require.Contains(t, text, "b.example")
	status, text = rig.expected(t, `no`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "the node of an Envoy's bootstrap")
	require.Empty(t, rig.engine.Clients())

	config := mustRead(t, dir+"/tributary.yaml")
	write(t, dir+"/tributary.yaml", config+"access:\n- {who: {cidr: [127.0.0.0/8]}, allow: {namespaces: [shop]}}\n")
	_, err := rig.reloader.Reload(t.Context(), "the test")
	require.NoError(t, err)
	status, text = rig.expected(t, `{"id": "web"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "decide by the identity")

	stream := xdstest.Dial(t, rig.XDS().String(), false)
	stream.Node = &corev3.Node{Id: "web"}
	stream.Ask(xds.ClusterURL)
	stream.Next()
	eventually(t, func() error {
		if status, text = rig.expected(t, `{"id": "web"}`); status != http.StatusOK {
			return errors.New(text)
		}
		return nil
	})
	require.Contains(t, text, "a.example")
	require.NotContains(t, text, "b.example", "it may not see that")
	require.Contains(t, text, `"connected": true`)
}
