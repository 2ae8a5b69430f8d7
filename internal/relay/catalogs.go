package relay

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/server/envoy"
	"tributary/server/mcp"
	"tributary/server/xds"
)

// catalogs serves the view in both forms: Envoy's types to who asks for those, and Istio's kinds to all others.
type catalogs struct {
	mcp   *mcp.Catalog
	envoy *envoy.Catalog
}

// Collection implements xds.Catalog.
func (c catalogs) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	if envoy.Serves(typeURL) {
		return c.envoy.Collection(ctx, node, typeURL)
	}
	return c.mcp.Collection(ctx, node, typeURL)
}
