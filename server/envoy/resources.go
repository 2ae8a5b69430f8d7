package envoy

import (
	"context"
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

var errNotYet = errors.New("not everything was read yet, and nothing is sent before")

// Resources returns all that would be sent to a client of a node if it asked now, and whether it would have to ask for each virtual host
// and cluster. It does not register a client, and leaves no scope behind.
func (c *Catalog) Resources(ctx context.Context, node *corev3.Node, delta bool) (all []xds.Served, onDemand bool, err error) {
	p := model.ProfileOf(node)
	p.OnDemand = p.OnDemand && delta
	if err := p.Check(); err != nil {
		return nil, false, err
	}
	if err := c.awaitMesh(ctx); err != nil {
		return nil, false, err
	}
	narrowed := p
	defer c.narrow(&narrowed, node, nil)()
	narrowed.Inbound = ""
	kept := c.scopes.Has(narrowed)
	v, release, err := c.acquire(ctx, p, node)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if release(); !kept {
			c.scopes.Forget(v.profile)
		}
	}()
	for _, coll := range v.all() {
		if !coll.Synced() {
			return nil, false, errNotYet
		}
	}
	for _, coll := range v.all() {
		all = append(all, xds.Served{TypeURL: coll.TypeURL(), Version: coll.Version(), Entries: slices.Collect(coll.All())})
	}
	return all, p.OnDemand, nil
}
