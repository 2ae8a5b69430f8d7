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

// family is the collections of the clients with one filter.
type family struct {
	filter filter
	key    string
	group  *xds.Group // a commit of the view is one of all kinds
	kinds  map[resource.Kind]*xds.Collection
}

// Clients choose their filters, so the cost of all is bounded.
const (
	maxFamilies = 1000 // in use at once, besides that of all
	maxOfHost   = 100
	maxCost     = 20_000_000 // of those in use, in entries
	maxHostCost = 4_000_000
	// maxIdleCost bounds the families without clients that are kept. Each costs what it holds, and something besides.
	maxIdleCost = 1_000_000
	familyCost  = 10_000
	// maxTries is how often a family is made anew, if the view changes too much meanwhile, before the view has to wait.
	maxTries = 3
	// maxFilter is the size in bytes of a filter.
	maxFilter = 64 << 10
)

func (c *Catalog) newFamily(f filter) *family {
	fam := &family{filter: f, key: f.key(), group: xds.NewGroup(c.opts.Debounce), kinds: make(map[resource.Kind]*xds.Collection)}
	for _, s := range resource.Schemas() {
		// istiod does not acknowledge a MeshConfig.
		fam.kinds[s.Kind] = fam.group.Collection(xds.Type{URL: s.TypeURL(), NoAck: s.Bare})
	}
	return fam
}

func (f *family) markSynced() {
	for _, coll := range f.kinds {
		coll.MarkSynced()
	}
}

// entry returns the entry of r in any version, or nil.
func (f *family) entry(r *resource.Resource) *xds.Entry {
	if coll := f.kinds[r.Key().Kind]; coll != nil {
		return coll.Get(r.Key().FullName())
	}
	return nil
}

// fill makes what the filter leaves of snap the content of the family, with the entries that entry returns.
func (f *family) fill(snap memstore.Snapshot, entry func(*resource.Resource) *xds.Entry, since time.Time) {
	commits := make(map[*xds.Collection]*xds.Commit, len(f.kinds))
	for kind, coll := range f.kinds {
		commit := &xds.Commit{Reset: true, Since: since}
		for r := range f.filter.visible(snap, kind) {
			if e := entry(r); e != nil {
				commit.Put = append(commit.Put, e)
			}
		}
		commits[coll] = commit
	}
	f.group.Apply(commits)
}

// follow is fill if keys are all that may have changed.
func (f *family) follow(keys []resource.Key, snap memstore.Snapshot, entry func(*resource.Resource) *xds.Entry, since time.Time) {
	commits := make(map[*xds.Collection]*xds.Commit)
	for _, key := range keys {
		coll := f.kinds[key.Kind]
		if coll == nil {
			continue
		}
		commit := commits[coll]
		if commit == nil {
			commit = &xds.Commit{Since: since}
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

// acquire returns the family of f for one more user on a host, and a function that ends that use.
func (c *Catalog) acquire(ctx context.Context, f filter, host string) (*family, func(), error) {
	if n := len(f.own()); n > maxFilter {
		return nil, nil, status.Errorf(codes.InvalidArgument, "filter of %d bytes: the limit is %d", n, maxFilter)
	}
	key := f.key()
	if key == c.all.key {
		return c.all, func() {}, nil
	}
	return c.families.Acquire(ctx, key, host, families.Maker[*family]{
		Estimate: func() int { return c.estimate(f) },
		Make:     func(ctx context.Context) (*family, error) { return c.make(ctx, f) },
	})
}

// estimate is what the family of f will cost.
func (c *Catalog) estimate(f filter) int {
	cost, snap := familyCost, c.snapshot()
	for kind := range c.all.kinds {
		for range f.visible(snap, kind) {
			cost++
		}
	}
	return cost
}

// make makes a family, unless ctx ends. Commits of the view go on meanwhile.
func (c *Catalog) make(ctx context.Context, f filter) (*family, error) {
	fam := c.newFamily(f)
	for tries := 0; ; tries++ {
		snap := c.snapshot()
		fam.fill(snap, c.all.entry, time.Time{})
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.adopt(fam, snap, tries == maxTries) {
			return fam, nil
		}
	}
}

func (c *Catalog) snapshot() memstore.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap
}

// adopt adds a family that shows snap to those that follow the view, and brings it up to date. If the view changed too much for that, it
// returns false, unless it must.
func (c *Catalog) adopt(fam *family, snap memstore.Snapshot, must bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if snap.Revision() != c.snap.Revision() {
		keys, _, ok := c.view.Changes(snap.Revision())
		switch {
		case ok:
			fam.follow(keys, c.snap, c.all.entry, time.Time{})
		case must:
			fam.fill(c.snap, c.all.entry, time.Time{})
		default:
			return false
		}
	}
	if c.synced {
		fam.markSynced()
	}
	c.following[fam] = struct{}{}
	return true
}

// drop removes a family from those that follow the view.
func (c *Catalog) drop(fam *family) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.following, fam)
}

// cost is the cost of keeping a family.
func (f *family) cost() int {
	cost := familyCost
	for _, coll := range f.kinds {
		cost += coll.Len()
	}
	return cost
}
