package mcp

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/families"
	"tributary/server/xds"
)

// family has the collections of the clients with a filter.
type family struct {
	filter filter
	key    string
	group  *xds.Group // applies a commit of the view to all kinds at once
	kinds  map[resource.Kind]*xds.Collection
}

// The number and the cost of families are limited, because clients choose their filters. The unit of costs is an entry.
const (
	maxFamilies = 1000 // in use, without the unfiltered family
	maxOfHost   = 100
	maxCost     = 20_000_000 // of the families in use
	maxHostCost = 4_000_000
	maxIdleCost = 1_000_000 // of the families without clients
	familyCost  = 10_000    // of a family without entries

	maxFilterBytes = 64 << 10
)

func (c *Catalog) newFamily(requested filter) *family {
	created := &family{
		filter: requested, key: requested.key(), group: xds.NewGroup(c.opts.Debounce),
		kinds: make(map[resource.Kind]*xds.Collection),
	}
	for _, schema := range resource.Schemas() {
		// istiod does not acknowledge a MeshConfig.
		created.kinds[schema.Kind] = created.group.Collection(xds.Type{URL: schema.TypeURL(), NoAck: schema.Bare})
	}
	return created
}

func (f *family) markSynced() {
	for _, coll := range f.kinds {
		coll.MarkSynced()
	}
}

// entry returns the entry of a resource in any version, or nil.
func (f *family) entry(r *resource.Resource) *xds.Entry {
	if coll := f.kinds[r.Key().Kind]; coll != nil {
		return coll.Get(r.Key().FullName())
	}
	return nil
}

// fill replaces the content of the family by the visible resources of snap. entry returns their entries.
func (f *family) fill(snap memstore.Snapshot, entry func(*resource.Resource) *xds.Entry, changedAt time.Time) {
	commits := make(map[*xds.Collection]*xds.Commit, len(f.kinds))
	for kind, coll := range f.kinds {
		commit := &xds.Commit{Reset: true, Since: changedAt}
		for r := range f.filter.visible(snap, kind) {
			if e := entry(r); e != nil {
				commit.Put = append(commit.Put, e)
			}
		}
		commits[coll] = commit
	}
	f.group.Apply(commits)
}

// follow updates the family where only keys may have changed.
func (f *family) follow(
	keys []resource.Key, snap memstore.Snapshot, entry func(*resource.Resource) *xds.Entry, changedAt time.Time,
) {
	commits := make(map[*xds.Collection]*xds.Commit)
	for _, key := range keys {
		coll := f.kinds[key.Kind]
		if coll == nil {
			continue
		}
		commit := commits[coll]
		if commit == nil {
			commit = &xds.Commit{Since: changedAt}
			commits[coll] = commit
		}
		if r := snap.Get(key); r != nil && f.filter.matches(r) {
			if e := entry(r); e != nil {
				commit.Put = append(commit.Put, e)
				continue
			}
		}
		commit.Remove = append(commit.Remove, key.FullName())
	}
	f.group.Apply(commits)
}

// acquire returns the family of a filter, and a function that ends its use by a client on a host.
func (c *Catalog) acquire(ctx context.Context, requested filter, host string) (*family, func(), error) {
	if size := len(requested.namespaceKey()); size > maxFilterBytes {
		return nil, nil, status.Errorf(codes.InvalidArgument, "filter of %d bytes: the limit is %d", size, maxFilterBytes)
	}
	requested = c.canonical(requested)
	key := requested.key()
	if key == c.unfiltered.key {
		return c.unfiltered, func() {}, nil
	}
	return c.families.Acquire(ctx, key, host, families.Maker[*family]{
		Estimate: func() int { return c.estimate(requested) },
		Make:     func(ctx context.Context) (*family, error) { return c.make(ctx, requested) },
	})
}

// estimate returns the cost of the family of a filter.
func (c *Catalog) estimate(requested filter) int {
	c.mu.Lock()
	snap := c.snap
	c.mu.Unlock()
	cost := familyCost
	for kind := range c.unfiltered.kinds {
		for range requested.visible(snap, kind) {
			cost++
		}
	}
	return cost
}

// make makes a family, which follows the view. Commits of the view wait.
func (c *Catalog) make(ctx context.Context, requested filter) (*family, error) {
	created := c.newFamily(requested)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	created.fill(c.snap, c.unfiltered.entry, time.Time{})
	if c.synced {
		created.markSynced()
	}
	c.following[created] = struct{}{}
	return created, nil
}

// drop ends the updates of a family.
func (c *Catalog) drop(fam *family) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.following, fam)
}

// cost returns the cost of the family.
func (f *family) cost() int {
	cost := familyCost
	for _, coll := range f.kinds {
		cost += coll.Len()
	}
	return cost
}
