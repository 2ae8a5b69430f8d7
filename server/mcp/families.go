package mcp

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// family is the collections of those clients that have one filter.
type family struct {
	filter filter
	key    string
	group  *xds.Group // a commit of the view is one of all kinds
	kinds  map[resource.Kind]*xds.Collection

	// guarded by Catalog.mu
	users int
	used  uint64 // when it was last used, by Catalog.clock
	cost  int    // when it was last used
}

// Filters are made up by clients, so what they cost is bounded.
const (
	// maxFamilies is how many filters may be in use at once.
	maxFamilies = 1000
	// maxOfHost is how many of them, besides the one of all, the clients of one IP address may use at once, so that others find some.
	maxOfHost = 100
	// maxIdleCost bounds the families without clients that are kept for clients that come back: the least recently used go
	// first. Each costs what it holds, and something besides.
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

// fill makes what the filter leaves of snap the content of the family. Entries are those of all, where it has any.
func (f *family) fill(snap memstore.Snapshot, all *family) {
	commits := make(map[*xds.Collection]*xds.Commit, len(f.kinds))
	for kind, coll := range all.kinds {
		commit := &xds.Commit{Reset: true}
		for r := range f.filter.visible(snap, kind) {
			if e := coll.Get(r.Key().FullName()); e != nil {
				commit.Put = append(commit.Put, e)
			}
		}
		commits[f.kinds[kind]] = commit
	}
	f.group.Apply(commits)
}

// follow brings the family to snap, which all shows, if keys are all that may have changed.
func (f *family) follow(keys []resource.Key, snap memstore.Snapshot, all *family) {
	commits := make(map[*xds.Collection]*xds.Commit)
	for _, key := range keys {
		coll := f.kinds[key.Kind]
		if coll == nil {
			continue
		}
		if commits[coll] == nil {
			commits[coll] = &xds.Commit{}
		}
		r, e := snap.Get(key), all.kinds[key.Kind].Get(key.FullName())
		if r != nil && e != nil && f.filter.matches(r) {
			commits[coll].Put = append(commits[coll].Put, e)
		} else {
			commits[coll].Remove = append(commits[coll].Remove, key.FullName())
		}
	}
	f.group.Apply(commits)
}

// acquire returns the family of f for one more user, on a host. One that is not there is made, one at a time, and without holding up the
// commits of the view.
func (c *Catalog) acquire(ctx context.Context, f filter, host string) (*family, error) {
	key := f.key()
	if len(key) > maxFilter {
		return nil, status.Errorf(codes.InvalidArgument, "filter of %d bytes: the limit is %d", len(key), maxFilter)
	}
	if fam, err := c.join(key, host); fam != nil || err != nil {
		return fam, err
	}
	select {
	case c.building <- struct{}{}:
		defer func() { <-c.building }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if fam, err := c.join(key, host); fam != nil || err != nil { // somebody else made it
		return fam, err
	}
	fam := c.newFamily(f)
	for tries := 0; ; tries++ {
		snap := c.snapshot()
		if fam.fill(snap, c.all); c.adopt(fam, host, snap, tries == maxTries) {
			return fam, nil
		}
	}
}

func (c *Catalog) snapshot() memstore.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap
}

// join returns the family of key for one more user, nil if there is none, or an error if there may be no more.
func (c *Catalog) join(key, host string) (*family, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fam, uses := c.families[key], c.hosts[host]
	if host != "" && fam != c.all && uses[key] == 0 && len(uses) >= maxOfHost {
		return nil, status.Errorf(codes.ResourceExhausted, "too many different filters in use by %s: the limit is %d", host, maxOfHost)
	}
	if fam != nil {
		c.use(fam, host)
		return fam, nil
	}
	inUse := 0
	for _, fam := range c.families {
		inUse += min(fam.users, 1)
	}
	if inUse >= maxFamilies {
		return nil, status.Errorf(codes.ResourceExhausted, "too many different filters in use: the limit is %d", maxFamilies)
	}
	return nil, nil //nolint:nilnil // see above
}

// adopt adds a family that shows snap to those that follow the view, and reports whether it could be brought up to date: the
// view may have changed too much. If it must, it is.
func (c *Catalog) adopt(fam *family, host string, snap memstore.Snapshot, must bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if snap.Revision() != c.snap.Revision() {
		keys, _, ok := c.view.Changes(snap.Revision())
		switch {
		case ok:
			fam.follow(keys, c.snap, c.all)
		case must:
			fam.fill(c.snap, c.all)
		default:
			return false
		}
	}
	if c.synced {
		fam.markSynced()
	}
	c.families[fam.key] = fam
	c.use(fam, host)
	return true
}

// use notes a user of a family, on a host; c.mu is held.
func (c *Catalog) use(fam *family, host string) {
	fam.users++
	if fam != c.all {
		if c.hosts[host] == nil {
			c.hosts[host] = make(map[string]int)
		}
		c.hosts[host][fam.key]++
	}
	c.clock++
	fam.used = c.clock
}

// unuse undoes use; c.mu is held.
func (c *Catalog) unuse(fam *family, host string) {
	fam.users--
	if fam == c.all {
		return
	}
	uses := c.hosts[host]
	if uses[fam.key]--; uses[fam.key] <= 0 {
		delete(uses, fam.key)
	}
	if len(uses) == 0 {
		delete(c.hosts, host)
	}
}

// release ends a use. Families without users go when they cost too much, the least recently used first.
func (c *Catalog) release(fam *family, host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unuse(fam, host); fam.users > 0 {
		return
	}
	c.clock++
	fam.used, fam.cost = c.clock, familyCost
	for _, coll := range fam.kinds {
		fam.cost += coll.Len()
	}
	var idle []*family
	cost := 0
	for _, f := range c.families {
		if f.users == 0 && f != c.all {
			idle = append(idle, f)
			cost += f.cost
		}
	}
	if cost <= maxIdleCost {
		return
	}
	slices.SortFunc(idle, func(a, b *family) int { return cmp.Compare(a.used, b.used) })
	for _, f := range idle {
		if cost > maxIdleCost {
			cost -= f.cost
			delete(c.families, f.key)
		}
	}
}
