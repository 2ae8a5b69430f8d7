package relay

import (
	"encoding/json"
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
	return r.get(t, "/debug/expected?node="+url.QueryEscape(node))
}

// TestExpected_Node: access rules decide on the expected configuration of a node, so the node must be connected. The
// question itself makes no client.
func TestExpected_Node(t *testing.T) {
	t.Parallel()
	rig := serve(t, []string{"rules/a.yaml: shop/a other/b"}, "name: rules, address: 'fs://./rules'")
	dir := rig.dir
	rig.awaitReady(t)
	var status int
	var text string
	await(t, func() bool { // the translation of a changed view takes a moment
		status, text = rig.expected(t, `{"id": "web"}`)
		return status == http.StatusOK
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
	rig.reloadFile(t)
	status, text = rig.expected(t, `{"id": "web"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "decide by the identity")

	stream := xdstest.Dial(t, rig.XDS().String(), false)
	stream.Node = &corev3.Node{Id: "web"}
	stream.Ask(xds.ClusterURL)
	stream.Next()
	await(t, func() bool {
		status, text = rig.expected(t, `{"id": "web"}`)
		return status == http.StatusOK
	})
	require.Contains(t, text, "a.example")
	require.NotContains(t, text, "b.example", "it may not see that")
	require.Contains(t, text, `"connected": true`)
}
