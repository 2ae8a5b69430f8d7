package relay

import (
	"context"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/resource"
	"tributary/server/access"
	"tributary/server/debug"
	"tributary/server/envoy"
	"tributary/server/mcp"
	"tributary/server/xds"
)

// catalogs serves the view as Envoy's types or as Istio's kinds, whichever a client subscribes to. A client that may not see all objects
// gets Envoy's types of a restricted view, and Istio's kinds of another family of collections. istioctl gets the state of all clients.
type catalogs struct {
	mcp        *mcp.Catalog
	envoy      *envoy.Catalog
	restricted *restrictedViews
	istioctl   *debug.Istioctl
}

// Collection implements xds.Catalog.
func (c catalogs) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	switch {
	case envoy.Serves(typeURL):
		return c.ofEnvoy(ctx, node, typeURL)
	case debug.IsIstioctl(typeURL):
		if err := access.Service(ctx, access.Debug); err != nil {
			return nil, nil, err
		}
		return c.istioctl.Collection(ctx, node, typeURL)
	}
	return c.mcp.Collection(ctx, node, typeURL)
}

// ofEnvoy returns the collection of one of Envoy's types.
func (c catalogs) ofEnvoy(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	allowed, err := access.Of(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	if !allowed.Type(typeURL) {
		return nil, nil, xds.ErrNoAnswer
	}
	of, leave, err := c.envoyFor(ctx, allowed)
	if err != nil {
		return nil, nil, err
	}
	coll, release, err := of.Collection(ctx, node, typeURL)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return coll, func() {
		if release != nil {
			release()
		}
		leave()
	}, nil
}

// envoyFor returns the catalog of Envoy's types for clients with these permissions, and the function that ends its use.
func (c catalogs) envoyFor(ctx context.Context, allowed *access.Allowed) (*envoy.Catalog, func(), error) {
	objects := allowed.Objects()
	if objects == nil {
		return c.envoy, func() {}, nil
	}
	w, leave, err := c.restricted.acquire(ctx, objects)
	if err != nil {
		return nil, nil, err
	}
	return w.envoy, leave, nil
}

// resources returns what an Envoy of a node that is allowed something would be sent now, and whether it has to ask for each virtual host
// and cluster.
func (c catalogs) resources(ctx context.Context, allowed *access.Allowed, node *corev3.Node, delta bool) ([]xds.Served, bool, error) {
	of, leave, err := c.envoyFor(ctx, allowed)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	served, onDemand, err := of.Resources(ctx, node, delta)
	return slices.DeleteFunc(served, func(s xds.Served) bool { return !allowed.Type(s.TypeURL) }), onDemand, err
}

func (c catalogs) ofEnvoys() []*envoy.Catalog { return append(c.restricted.catalogs(), c.envoy) }

// withoutEffect returns what of an object has no effect on clients.
func (c catalogs) withoutEffect(r *resource.Resource) (all []string) {
	for _, one := range c.ofEnvoys() {
		all = append(all, one.WithoutEffect(r)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// affected returns the objects of which something has no effect on clients, in order.
func (c catalogs) affected() []resource.Key { return c.objects((*envoy.Catalog).Affected) }

// unenforced returns the security objects that clients do not enforce, in order.
func (c catalogs) unenforced() []resource.Key { return c.objects((*envoy.Catalog).Unenforced) }

func (c catalogs) objects(of func(*envoy.Catalog) []resource.Key) (all []resource.Key) {
	for _, one := range c.ofEnvoys() {
		all = append(all, of(one)...)
	}
	slices.SortFunc(all, resource.Key.Compare)
	return slices.Compact(all)
}

// changedSince returns what a rejected resource is made of and has changed since: see envoy.Catalog.
func (c catalogs) changedSince(coll *xds.Collection, r xds.Rejection) (some []resource.Key, complete bool) {
	for _, one := range c.ofEnvoys() {
		if some, complete = one.ChangedSince(coll, r); complete || len(some) > 0 {
			break
		}
	}
	return some, complete
}
