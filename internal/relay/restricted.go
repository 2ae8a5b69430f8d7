package relay

import (
	"context"
	"sync"
	"time"

	"tributary/internal/recent"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/envoy"
	"tributary/server/families"
)

// restrictedView holds the objects that some clients may read, and their translation for Envoys. The endpoints and
// routes of Envoys are made from these objects alone, so that they reveal no other object.
type restrictedView struct {
	// read-only
	objects *memstore.Table
	envoy   *envoy.Catalog
	stop    context.CancelFunc
}

// Clients with the same rights share a restricted view, so that there are few. Idle views stay up to a total cost,
// which counts objects.
const (
	maxRestrictedViews  = 1000
	maxIdleCost         = 200_000
	restrictedViewsCost = 10_000 // of each view without objects
)

// restrictedViews are the restricted views with clients, and some without, for clients that return.
type restrictedViews struct {
	*families.Set[string, *restrictedView]

	// read-only
	view       memstore.Reader
	newCatalog func(objects memstore.Reader, rights *access.Rights) *envoy.Catalog
	ctx        context.Context //nolint:containedctx // of the goroutines of all views
	stop       context.CancelFunc

	mu      sync.Mutex     // so that start begins no goroutine after run has called stop
	running sync.WaitGroup // the goroutines of all views
}

func newRestrictedViews(
	view memstore.Reader, newCatalog func(memstore.Reader, *access.Rights) *envoy.Catalog,
) *restrictedViews {
	views := &restrictedViews{view: view, newCatalog: newCatalog}
	views.ctx, views.stop = context.WithCancel(context.Background())
	limits := families.Limits{Max: maxRestrictedViews, MaxIdleCost: maxIdleCost}
	views.Set = families.New[string]("access rules", limits, func(view *restrictedView) int {
		return restrictedViewsCost + view.objects.Snapshot().Len()
	}, func(view *restrictedView) { view.stop() })
	return views
}

// acquire returns the restricted view of clients with these rights, and a function that ends its use.
func (r *restrictedViews) acquire(ctx context.Context, rights *access.Rights) (*restrictedView, func(), error) {
	return r.Acquire(ctx, rights.Key(), "", families.Maker[*restrictedView]{
		Estimate: func() int { return restrictedViewsCost },
		Make:     func(context.Context) (*restrictedView, error) { return r.start(rights), nil },
	})
}

// start makes a restricted view, which follows the view until it is dropped or run ends.
func (r *restrictedViews) start(rights *access.Rights) *restrictedView {
	ctx, stop := context.WithCancel(r.ctx)
	restricted := &restrictedView{objects: &memstore.Table{}, stop: stop}
	restricted.envoy = r.newCatalog(restricted.objects, rights)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil {
		r.running.Go(func() { restricted.follow(ctx, r.view, rights) })
		r.running.Go(func() { _ = restricted.envoy.Run(ctx) }) // returns the error of ctx
	}
	return restricted
}

// follow keeps a copy of the objects that the rights allow until ctx ends. The copy also has security objects and their
// references, since Envoys must enforce them in any case.
func (v *restrictedView) follow(ctx context.Context, view memstore.Reader, rights *access.Rights) {
	var copied memstore.Snapshot
	_ = memstore.Follow(ctx, view, nil, func(_ []resource.Key, _ memstore.Snapshot, _, synced bool) {
		var puts []*resource.Resource
		var deletes []resource.Key
		changes, present := memstore.ChangesFrom(view, copied)
		for change := range changes {
			if change.New != nil && (rights.AllowsObject(change.New) || resource.Restricts(change.Key().Kind)) {
				puts = append(puts, change.New)
			} else {
				deletes = append(deletes, change.Key())
			}
		}
		changedAt := recent.Earlier(present.Since(copied.Revision()), time.Now())
		v.objects.ApplyView(changedAt, puts, deletes, present.Invalid())
		copied = present
		if synced {
			v.objects.MarkSynced()
		}
	})
}

// run stops all restricted views when ctx ends.
func (r *restrictedViews) run(ctx context.Context) error {
	<-ctx.Done()
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.running.Wait()
	return nil
}
