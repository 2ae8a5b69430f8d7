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

// catalogs serves the view as Envoy's types or as Istio's kinds, by the type of the subscription. A client with limited
// rights gets Envoy's types of a restricted view, and Istio's kinds of another family of collections. istioctl gets the
// state of all clients.
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
		return c.envoyCollection(ctx, node, typeURL)
	case debug.IsIstioctl(typeURL):
		if err := access.RequireService(ctx, access.Debug); err != nil {
			return nil, nil, err
		}
		return c.istioctl.Collection(ctx, node, typeURL)
	}
	return c.mcp.Collection(ctx, node, typeURL)
}

// envoyCollection returns the collection of one of Envoy's types.
func (c catalogs) envoyCollection(
	ctx context.Context, node *corev3.Node, typeURL string,
) (*xds.Collection, func(), error) {
	rights, err := access.RightsOf(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	if !rights.AllowsType(typeURL) {
		return nil, nil, xds.ErrNoAnswer
	}
	catalog, leave, err := c.envoyFor(ctx, rights)
	if err != nil {
		return nil, nil, err
	}
	coll, release, err := catalog.Collection(ctx, node, typeURL)
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

// envoyFor returns the catalog of Envoy's types for clients with these rights, and a function that ends its use.
func (c catalogs) envoyFor(ctx context.Context, rights *access.Rights) (*envoy.Catalog, func(), error) {
	objects := rights.Objects()
	if objects == nil {
		return c.envoy, func() {}, nil
	}
	view, leave, err := c.restricted.acquire(ctx, objects)
	if err != nil {
		return nil, nil, err
	}
	return view.envoy, leave, nil
}

// resources returns the resources that an Envoy with these rights and this node would receive now, and whether it has
// to subscribe to each virtual host and cluster.
func (c catalogs) resources(
	ctx context.Context, rights *access.Rights, node *corev3.Node, delta bool,
) (served []xds.Served, onDemand bool, err error) {
	catalog, leave, err := c.envoyFor(ctx, rights)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	served, onDemand, err = catalog.Resources(ctx, node, delta)
	return slices.DeleteFunc(served, func(s xds.Served) bool { return !rights.AllowsType(s.TypeURL) }), onDemand, err
}

// envoyCatalogs returns the catalogs of all restricted views and of the view.
func (c catalogs) envoyCatalogs() (catalogs []*envoy.Catalog) {
	for _, view := range c.restricted.Families() {
		catalogs = append(catalogs, view.envoy)
	}
	return append(catalogs, c.envoy)
}

// withoutEffect returns the fields of an object that have no effect on clients.
func (c catalogs) withoutEffect(r *resource.Resource) (fields []string) {
	for _, catalog := range c.envoyCatalogs() {
		fields = append(fields, catalog.WithoutEffect(r)...)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// affected returns the objects with fields that have no effect on clients, in order.
func (c catalogs) affected() []resource.Key { return c.objects((*envoy.Catalog).Affected) }

// unenforced returns the security objects that clients do not enforce, in order.
func (c catalogs) unenforced() []resource.Key { return c.objects((*envoy.Catalog).Unenforced) }

func (c catalogs) objects(list func(*envoy.Catalog) []resource.Key) (keys []resource.Key) {
	for _, catalog := range c.envoyCatalogs() {
		keys = append(keys, list(catalog)...)
	}
	slices.SortFunc(keys, resource.Key.Compare)
	return slices.Compact(keys)
}

// changedSince returns the objects of a rejected resource that changed since the rejection: see envoy.Catalog.
func (c catalogs) changedSince(coll *xds.Collection, r xds.Rejection) (changed []resource.Key, complete bool) {
	for _, catalog := range c.envoyCatalogs() {
		if changed, complete = catalog.ChangedSince(coll, r); complete || len(changed) > 0 {
			break
		}
	}
	return changed, complete
}
