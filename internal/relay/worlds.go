package relay

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"tributary/internal/recent"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/envoy"
	"tributary/server/families"
)

// world is the part of the view that some clients are allowed to see, and what Envoys are told of that. What they may not see is not in it,
// so that nothing that is made of it, such as the endpoints of a service or the routes to it, can tell of that.
type world struct {
	// read-only
	part  *memstore.Table
	envoy *envoy.Catalog
	stop  context.CancelFunc
}

// Rules of the configuration make worlds, and not clients, so that there are few. Those without clients are kept up to a cost, in objects.
const (
	maxWorlds    = 1000
	maxIdleParts = 200_000
	worldCost    = 10_000 // of one, besides its objects
)

// worlds are those in use, and some that were.
type worlds struct {
	// read-only
	view memstore.Reader
	make func(part memstore.Reader) *envoy.Catalog
	set  *families.Set[string, *world]
	ctx  context.Context //nolint:containedctx // of what runs in all of them
	stop context.CancelFunc

	mu      sync.Mutex
	ended   bool
	all     map[*world]struct{}
	running sync.WaitGroup
}

func newWorlds(view memstore.Reader, catalog func(part memstore.Reader) *envoy.Catalog) *worlds {
	w := &worlds{view: view, make: catalog, all: make(map[*world]struct{})}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.set = families.New[string]("access rules", families.Limits{Max: maxWorlds, MaxIdleCost: maxIdleParts}, func(one *world) int {
		return worldCost + one.part.Snapshot().Len()
	}, w.drop)
	return w
}

// acquire returns the world of those who are allowed something, and what ends its use.
func (w *worlds) acquire(ctx context.Context, allowed *access.Allowed) (*world, func(), error) {
	return w.set.Acquire(ctx, allowed.Key(), "", families.Maker[*world]{
		Estimate: func() int { return worldCost },
		Make:     func(context.Context) (*world, error) { return w.begin(allowed), nil },
	})
}

func (w *worlds) begin(allowed *access.Allowed) *world {
	ctx, stop := context.WithCancel(w.ctx)
	one := &world{part: &memstore.Table{}, stop: stop}
	one.envoy = w.make(one.part)
	w.start(ctx, one, allowed)
	return one
}

// start has a world follow the view until ctx ends.
func (w *worlds) start(ctx context.Context, one *world, allowed *access.Allowed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return // nobody is served any more
	}
	w.all[one] = struct{}{}
	var parts sync.WaitGroup
	parts.Go(func() { _ = one.follow(ctx, w.view, allowed) }) // it ends with ctx
	parts.Go(func() { _ = one.envoy.Run(ctx) })
	w.running.Go(func() {
		parts.Wait()
		w.mu.Lock()
		delete(w.all, one)
		w.mu.Unlock()
	})
}

// follow has the part be what is allowed of the view.
func (one *world) follow(ctx context.Context, view memstore.Reader, allowed *access.Allowed) error {
	var seen memstore.Revision
	return memstore.Follow(ctx, view, nil, func(keys []resource.Key, now memstore.Snapshot, incremental, synced bool) {
		var puts []*resource.Resource
		var gone []resource.Key
		if incremental {
			for _, key := range keys {
				if r := now.Get(key); r != nil && allowed.Object(r) {
					puts = append(puts, r)
				} else {
					gone = append(gone, key)
				}
			}
		} else {
			for r := range now.All() {
				if allowed.Object(r) {
					puts = append(puts, r)
				}
			}
			for r := range one.part.Snapshot().All() {
				if is := now.Get(r.Key()); is == nil || !allowed.Object(is) {
					gone = append(gone, r.Key())
				}
			}
		}
		one.part.ApplySince(recent.Earlier(now.Since(seen), time.Now()), puts, gone)
		seen = now.Revision()
		if synced {
			one.part.MarkSynced()
		}
	})
}

// drop ends a world.
func (w *worlds) drop(one *world) { one.stop() }

// run ends them when ctx does.
func (w *worlds) run(ctx context.Context) error {
	<-ctx.Done()
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.stop()
	w.running.Wait()
	return nil
}

// catalogs are those of all worlds.
func (w *worlds) catalogs() (all []*envoy.Catalog) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range slices.Collect(maps.Keys(w.all)) {
		all = append(all, one.envoy)
	}
	return all
}
