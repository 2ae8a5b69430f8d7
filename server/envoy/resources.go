package envoy

import (
	"context"
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

var errNotSynced = errors.New("the sources are not completely read yet, and clients get no answer before")

// Resources returns the resources that a client of a node would get now, and whether it would have to request each
// virtual host and cluster. It does not register a client, and leaves no scope behind.
func (c *Catalog) Resources(ctx context.Context, node *corev3.Node, delta bool) (served []xds.Served, onDemand bool,
	err error,
) {
	profile := model.ProfileOf(node)
	profile.OnDemand = profile.OnDemand && delta
	if err := profile.Check(); err != nil {
		return nil, false, err
	}
	if err := c.awaitMesh(ctx); err != nil {
		return nil, false, err
	}
	narrowed := profile
	defer c.selectProfile(&narrowed, node, nil)()
	narrowed.Inbound = ""
	inUse := c.scopes.Has(narrowed)
	view, release, err := c.acquire(ctx, profile, node)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if release(); !inUse {
			c.scopes.Forget(view.profile)
		}
	}()
	if c.view.Synced() { // after a restart, the first scope begins with the former view
		select {
		case <-ctx.Done():
			return nil, false, status.FromContextError(ctx.Err()).Err()
		case <-c.caughtUp.given:
		}
	}
	for _, collection := range view.list() {
		if !collection.Synced() {
			return nil, false, errNotSynced
		}
	}
	for _, collection := range view.list() {
		served = append(served, xds.Served{
			TypeURL: collection.TypeURL(), Version: collection.Version(),
			Entries: slices.Collect(collection.All()),
		})
	}
	return served, profile.OnDemand, nil
}
