package envoy

import (
	"log/slog"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// Precedence depends on the client's namespace: an object that one namespace shares with another is local to the
// former, and not to the latter.
func TestPrecedence_DependsOnClientNamespace(t *testing.T) {
	var table memstore.Table
	for _, namespace := range []string{"other", "shop"} {
		r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: namespace, Name: "db"}},
			&networking.ServiceEntry{
				Hosts: []string{namespace + ".internal"}, Ports: []*networking.ServicePort{{Number: 80, Name: "tcp", Protocol: "TCP"}},
				Resolution: networking.ServiceEntry_STATIC, ExportTo: []string{"shop", "other"},
			})
		require.NoError(t, err)
		table.Apply([]*resource.Resource{r}, nil)
	}
	catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.update(nil, table.Snapshot(), false, true)
	for _, namespace := range []string{"other", "shop"} {
		var chains string
		for _, m := range dump(t, catalog, node(namespace, "NONE", "")) {
			if l, ok := m.(*listenerv3.Listener); ok {
				chains += l.String()
			}
		}
		require.Contains(t, chains, "outbound|80||"+namespace+".internal")
	}
}
