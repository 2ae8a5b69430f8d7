package relay

import (
	"context"
	"path/filepath"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/aggregate/conflicts"
	"tributary/server/admin"
	"tributary/server/debug"
	"tributary/server/envoy"
	"tributary/server/mcp"
	"tributary/server/xds"
	"tributary/sources/lastgood"
)

// catalogs serves the view in both forms: Envoy's types to who asks for those, and Istio's kinds to all others. istioctl is told how they
// all are.
type catalogs struct {
	mcp       *mcp.Catalog
	envoy     *envoy.Catalog
	questions *debug.Questions
}

// Collection implements xds.Catalog.
func (c catalogs) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	switch {
	case envoy.Serves(typeURL):
		return c.envoy.Collection(ctx, node, typeURL)
	case debug.IsQuestion(typeURL):
		return c.questions.Collection(ctx, node, typeURL)
	}
	return c.mcp.Collection(ctx, node, typeURL)
}

// rejected returns what Envoys reject, as the admin server shows it.
func (c catalogs) rejected() (all []admin.Rejected) {
	for _, q := range c.envoy.Quarantined() {
		all = append(all, admin.Rejected{
			Ref: conflicts.Ref(q.Key), Origin: q.Origin.String(), Version: q.Version, Serves: q.Serves, Since: q.Since,
			TypeURL: q.TypeURL, Resources: q.Resources, Error: q.Error, Node: q.Node, Peer: q.Peer,
		})
	}
	return all
}

// quarantineFile is where what Envoys reject is kept; empty for nowhere.
func quarantineFile(state *lastgood.Dir) string {
	if state == nil {
		return ""
	}
	return filepath.Join(state.Path(), "envoy-quarantine")
}
