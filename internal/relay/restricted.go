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

// restrictedView is the part of the view that some clients are allowed to see, and its translation for Envoys. Objects that these clients
// may not see are not in it, so that nothing that is made of it, such as the endpoints of a service or its routes, reveals them.
type restrictedView struct {
	// read-only
	part  *memstore.Table
	envoy *envoy.Catalog
	stop  context.CancelFunc
}

// There is a restricted view for each set of access rules that applies, not for each client, so there are few. Those without clients are
// kept up to a total cost, in objects.
const (
	maxRestrictedViews = 1000
	maxIdleParts       = 200_000
	restrictedViewCost = 10_000 // of one, besides its objects
)

// restrictedViews are the restricted views in use, and some that were.
type restrictedViews struct {
	// read-only
	view memstore.Reader
	make func(part memstore.Reader, allowed *access.Allowed) *envoy.Catalog
	set  *families.Set[string, *restrictedView]
	ctx  context.Context //nolint:containedctx // of what runs in all of them
	stop context.CancelFunc

	mu      sync.Mutex
	ended   bool
	all     map[*restrictedView]struct{}
	running sync.WaitGroup
}

func newRestrictedViews(view memstore.Reader, catalog func(memstore.Reader, *access.Allowed) *envoy.Catalog) *restrictedViews {
	w := &restrictedViews{view: view, make: catalog, all: make(map[*restrictedView]struct{})}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.set = families.New[string]("access rules", families.Limits{Max: maxRestrictedViews, MaxIdleCost: maxIdleParts},
		func(one *restrictedView) int {
			return restrictedViewCost + one.part.Snapshot().Len()
		}, func(one *restrictedView) { one.stop() })
	return w
}

// acquire returns the restricted view of clients with these permissions, and the function that ends its use.
func (w *restrictedViews) acquire(ctx context.Context, allowed *access.Allowed) (*restrictedView, func(), error) {
	return w.set.Acquire(ctx, allowed.Key(), "", families.Maker[*restrictedView]{
		Estimate: func() int { return restrictedViewCost },
		Make:     func(context.Context) (*restrictedView, error) { return w.begin(allowed), nil },
	})
}

func (w *restrictedViews) begin(allowed *access.Allowed) *restrictedView {
	ctx, stop := context.WithCancel(w.ctx)
	one := &restrictedView{part: &memstore.Table{}, stop: stop}
	one.envoy = w.make(one.part, allowed)
	w.start(ctx, one, allowed)
	return one
}

// start has a restricted view follow the view until ctx ends.
func (w *restrictedViews) start(ctx context.Context, one *restrictedView, allowed *access.Allowed) {
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

// follow copies the objects that are allowed from the view to the part.
func (one *restrictedView) follow(ctx context.Context, view memstore.Reader, allowed *access.Allowed) error {
	var seen memstore.Snapshot
	return memstore.Follow(ctx, view, nil, func(_ []resource.Key, _ memstore.Snapshot, _, synced bool) {
		var puts []*resource.Resource
		var gone []resource.Key
		changes, now := memstore.ChangesFrom(view, seen)
		for c := range changes {
			if c.New != nil && (allowed.Object(c.New) || isEnforced(c.Key().Kind)) {
				puts = append(puts, c.New)
			} else {
				gone = append(gone, c.Key())
			}
		}
		one.part.ApplySince(recent.Earlier(now.Since(seen.Revision()), time.Now()), puts, gone)
		seen = now
		if synced {
			one.part.MarkSynced()
		}
	})
}

// isEnforced says whether Envoys enforce objects of a kind whatever their clients may see: security objects, and what these refer to.
func isEnforced(kind resource.Kind) bool {
	return resource.Restricts(kind)
}

// run ends all restricted views when ctx ends.
func (w *restrictedViews) run(ctx context.Context) error {
	<-ctx.Done()
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.stop()
	w.running.Wait()
	return nil
}

// catalogs returns the catalogs of all restricted views.
func (w *restrictedViews) catalogs() (all []*envoy.Catalog) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range slices.Collect(maps.Keys(w.all)) {
		all = append(all, one.envoy)
	}
	return all
}
