package admin_test

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/admin"
	"tributary/server/xds"
)

// TestExplain_ListsTroubledEnvoysFirst has more Envoys than the explanation lists.
func TestExplain_ListsTroubledEnvoysFirst(t *testing.T) {
	w := &world{}
	server := newServer(w, serving(t, "rules", entry(t, "reviews", "rules", "a.yaml:1")))
	explained := func(query string) *admin.Translated {
		return page[admin.Explanation](t, server, "/debug/explain?"+query).Translated
	}
	const query = "kind=se&namespace=shop&name=reviews"
	client := func(node string, types ...xds.TypeStatus) {
		w.clients = append(w.clients, xds.ClientStatus{Node: &corev3.Node{Id: node}, Peer: "10.0.0.1:5", Types: types})
	}
	client("istiod", xds.TypeStatus{TypeURL: "networking.istio.io/v1/ServiceEntry"})
	require.Nil(t, explained(query))

	for i := range 20 {
		client(fmt.Sprint("synced", i), xds.TypeStatus{TypeURL: xds.ClusterURL, Synced: true})
	}
	client("behind", xds.TypeStatus{TypeURL: xds.ClusterURL, Synced: true},
		xds.TypeStatus{TypeURL: xds.ListenerURL, SentNonce: "2", NackNonce: "1", NackError: "before"})
	client("rejects", xds.TypeStatus{TypeURL: xds.RouteURL}, xds.TypeStatus{
		TypeURL: xds.ListenerURL, SentNonce: "1", NackNonce: "1",
		NackError: "no", NackAt: noon,
	})
	got := explained(query)
	require.Equal(t, 22, got.Clients)
	require.Equal(t, 20, got.Synced)
	require.Len(t, got.Listed, 10)
	require.Equal(t, admin.TranslatedClient{
		Node: "rejects", Peer: "10.0.0.1:5", Behind: []string{"RouteConfiguration"},
		Rejects: []admin.Reject{{TypeURL: xds.ListenerURL, Error: "no", Time: noon}},
	}, got.Listed[0])
	require.Equal(t, admin.TranslatedClient{Node: "behind", Peer: "10.0.0.1:5", Behind: []string{"Listener"}}, got.Listed[1])
	require.Equal(t, "synced0", got.Listed[2].Node)
	require.NotNil(t, explained("host=reviews.example"))
	require.Nil(t, explained("host=other.example"))
}
