package relay

import (
	"context"
	"errors"
	"log/slog"
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

// world is the part of the view that some clients are allowed to see, and what Envoys are told of that. What they may not see is not in it, so that
// nothing that is made of it, such as the endpoints of a service or the routes to it, can tell of that.
type world struct {
	// read-only
	key   string // of what is allowed
	part  *memstore.Table
	envoy *envoy.Catalog
	stop  context.CancelFunc
	ended chan struct{} // closed when nothing of it runs any more

	retired bool // nobody else comes, and nothing is kept; guarded by worlds.mu
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
	make func(part memstore.Reader, file string) *envoy.Catalog
	kept quarantines
	log  *slog.Logger
	set  *families.Set[string, *world]
	ctx  context.Context //nolint:containedctx // of what runs in all of them
	stop context.CancelFunc

	mu      sync.Mutex
	ended   bool
	all     map[*world]struct{}
	ofRules map[string]bool // the keys of what rules allow now
	running sync.WaitGroup
}

func newWorlds(view memstore.Reader, kept quarantines, log *slog.Logger, catalog func(part memstore.Reader, file string) *envoy.Catalog) *worlds {
	w := &worlds{view: view, make: catalog, kept: kept, log: log, all: make(map[*world]struct{})}
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

const stillKept = "what was in quarantine for those of whom there is no rule any more is still kept"

// goBy has the worlds be those of rules: others go with those who are in them, and what was in quarantine there is not kept. It is to be called before anybody is let in
// by the rules.
func (w *worlds) goBy(rules access.Rules) {
	is := make(map[string]bool)
	for _, r := range rules {
		if part := r.Allow.Objects(); part != nil {
			is[part.Key()] = true
		}
	}
	w.mu.Lock()
	was := w.ofRules
	w.ofRules = is
	stays := func(key string) bool { return is[key] && was[key] }
	var gone []*world
	for one := range w.all {
		if !stays(one.key) {
			one.retired = true
			gone = append(gone, one)
		}
	}
	w.mu.Unlock()
	w.set.Retire(func(key string) bool { return !stays(key) })
	var errs []error
	for _, one := range gone {
		errs = append(errs, one.envoy.Forget())
	}
	if err := errors.Join(append(errs, w.kept.clean(is))...); err != nil {
		w.log.Error(stillKept, "err", err)
	}
}

// await waits until nothing writes any more what is kept of a key: the one before that nobody uses, since another one is made.
func (w *worlds) await(key string) {
	w.mu.Lock()
	var before []*world
	for one := range w.all {
		if one.key == key && !one.retired {
			before = append(before, one)
		}
	}
	w.mu.Unlock()
	for _, one := range before {
		<-one.ended // it was dropped, or is about to be
	}
}

func (w *worlds) isOfRule(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ofRules[key]
}

func (w *worlds) begin(allowed *access.Allowed) *world {
	ctx, stop := context.WithCancel(w.ctx)
	one := &world{key: allowed.Key(), part: &memstore.Table{}, stop: stop, ended: make(chan struct{})}
	file := ""
	if w.isOfRule(one.key) {
		file = w.kept.file(one.key)
	}
	w.await(one.key)
	one.envoy = w.make(one.part, file)
	if !w.start(ctx, one, allowed) {
		if err := one.envoy.Forget(); err != nil {
			w.log.Error(stillKept, "err", err)
		}
	}
	return one
}

// start has a world follow the view until ctx ends, and says whether it is still that of a rule.
func (w *worlds) start(ctx context.Context, one *world, allowed *access.Allowed) (ofRule bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return true // nobody is served any more
	}
	w.all[one] = struct{}{}
	one.retired = !w.ofRules[one.key]
	var parts sync.WaitGroup
	parts.Go(func() { _ = one.follow(ctx, w.view, allowed) }) // it ends with ctx
	parts.Go(func() { _ = one.envoy.Run(ctx) })
	w.running.Go(func() {
		parts.Wait()
		w.mu.Lock()
		delete(w.all, one)
		w.mu.Unlock()
		close(one.ended)
	})
	return !one.retired
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
