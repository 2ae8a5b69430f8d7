package envoy

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"

	"tributary/internal/recent"
	"tributary/internal/turns"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/families"
	"tributary/server/xds"
)

// Options of a Catalog. The zero value is usable.
type Options struct {
	Debounce xds.Debounce // of every collection
	Log      *slog.Logger // slog.Default if nil
	// WarnUnenforced lets traffic pass although a security object cannot be enforced on it, and only warns. It lets
	// clients send plaintext where ISTIO_MUTUAL is wanted.
	WarnUnenforced bool
	// GuardFilters lets only EnvoyFilters of the root namespace bypass policies.
	GuardFilters bool
	// ProductBytes bounds the products of the objects of a namespace: resource.MaxProducts if 0, no limit if negative.
	ProductBytes int64
	// Sees reports whether clients may see the security objects of a namespace. All of them if nil.
	Sees func(namespace string) bool
	// Invalid returns the objects without a valid version in their source. See Recheck. None if nil.
	Invalid func() []resource.Key
}

// Catalog keeps the resources of Envoys and gRPC clients in step with a view, from the first client on.
type Catalog struct {
	// read-only
	view     memstore.Reader
	opts     Options
	log      *slog.Logger
	beats    memstore.Beat
	scopes   *families.Set[model.Profile, *scope]   // by profile without Inbound
	variants *families.Set[model.Profile, *variant] // of scopes in use
	asking   *turns.Turns                           // of narrow: the mesh cannot change while it finds services
	wanted   signal                                 // there was a client
	made     signal                                 // the mesh has a view
	scoped   signal                                 // there was a scope

	changing sync.RWMutex // held for writing while a change is brought to the scopes
	checking sync.Mutex   // held from a call of Options.Invalid until the mesh has the result

	mu          sync.RWMutex // held for reading while hosts are translated, and briefly for writing to change the mesh
	mesh        *index.Mesh
	last        memstore.Snapshot         // that the mesh was made of
	following   map[*scope]struct{}       // the scopes that follow the view
	synced      bool                      // all sources were read
	divided     uint64                    // the SelectorIndex.Changes that profiles divide clients with
	undecodable map[resource.Key]struct{} // objects of last
	budget      *budget
	ended       map[resource.Key]time.Time // since when mesh.Invalid has objects that are no longer said to be invalid
	changed     changedObjects             // after the first view that was complete
	review      func()                     // see SetReview; nil before that

	warning  sync.Mutex
	warned   []resource.Key    // the unenforced objects that the log has; guarded by warning
	warnedAt memstore.Revision // the view that it checked; guarded by warning
	warnedOf uint64            // the visits that it checked; guarded by warning
	visits   atomic.Uint64     // how often a scope got its first client

	cache      translationCache
	coverage   coverageCache
	fullRoutes fullRoutes
	bodies     bodies
}

// New returns a catalog of view. Clients get no answer until Run has read a view that is synced.
func New(view memstore.Reader, opts Options) *Catalog {
	c := &Catalog{
		view: view, opts: opts, log: cmp.Or(opts.Log, slog.Default()), beats: make(memstore.Beat), mesh: index.NewMesh(),
		following: make(map[*scope]struct{}), undecodable: make(map[resource.Key]struct{}),
		ended: make(map[resource.Key]time.Time), budget: newBudget(opts.ProductBytes, cmp.Or(opts.Log, slog.Default())),
		asking: turns.New(1), wanted: newSignal(), made: newSignal(), scoped: newSignal(),
	}
	c.mesh.Warn, c.mesh.GuardFilters, c.mesh.Sees = opts.WarnUnenforced, opts.GuardFilters, opts.Sees
	if c.opts.Invalid == nil {
		c.opts.Invalid = func() []resource.Key { return nil }
	}
	c.scopes = families.New[model.Profile]("profiles of clients", families.Limits{
		Max: model.MaxScopes, MaxOfHost: model.MaxOfHost, MaxCost: model.MaxCost, MaxCostOfHost: model.MaxHostCost,
		MaxIdleCost: model.MaxIdleCost,
	}, (*scope).cost, c.drop)
	c.variants = families.New[model.Profile]("sets of ports that workloads serve", families.Limits{
		Max: model.MaxVariants, MaxOfHost: model.MaxVariantsOfHost, MaxCost: model.MaxCost, MaxCostOfHost: model.MaxHostCost,
	}, (*variant).cost, c.dropVariant)
	return c
}

// SetReview sets the function that lets the streams of the catalog's server request their collections once more,
// Server.Review of server/xds. It must not block.
func (c *Catalog) SetReview(review func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.review = review
}

// Alive returns when it is known that Run goes on, or with the error of ctx.
func (c *Catalog) Alive(ctx context.Context) error { return c.beats.Await(ctx) }

// update brings all scopes with clients to snap. Unless incremental, it compares all objects, since keys does not list
// the changes.
func (c *Catalog) update(keys []resource.Key, snap memstore.Snapshot, incremental, synced bool) {
	if !incremental {
		keys = index.Differing(c.seen(), snap)
	}
	done := c.divideBefore(c.coming(keys, snap, synced))
	c.catchUpAll(c.change(keys, &snap, synced))
	done()
	c.reviewServers()
	c.warnUnenforced()
}

// coming yields the objects that a change of the view adds or replaces, old and new. It yields none before the view is
// synced, and all when it becomes synced.
func (c *Catalog) coming(keys []resource.Key, snap memstore.Snapshot, synced bool) iter.Seq[*resource.Resource] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case !c.synced && synced:
		return snap.All()
	case !c.synced:
		keys = nil
	}
	last := c.last
	return func(yield func(*resource.Resource) bool) {
		for _, key := range keys {
			for _, view := range []memstore.Snapshot{last, snap} {
				if r := view.Get(key); r != nil && !yield(r) {
					return
				}
			}
		}
	}
}

// catchUpAll brings scopes up to date, in the order of byCost. One processor is left for connections: Go polls them
// only on an idle one. For the same reason, scopes that are being made wait meanwhile.
func (c *Catalog) catchUpAll(scopes []*scope) {
	c.changing.Lock()
	defer c.changing.Unlock()
	var workers errgroup.Group
	workers.SetLimit(max(runtime.GOMAXPROCS(0)-1, 1))
	for _, s := range byCost(scopes) {
		workers.Go(func() error {
			defer func(start time.Time) { s.took.Store(int64(time.Since(start))) }(time.Now())
			return c.catchUp(context.Background(), s, func() {})
		})
	}
	_ = workers.Wait() // the context never ends
}

// byCost sorts scopes by the time that the last update took for each of their clients, so that the clients of an
// expensive one delay no others; equal ones by clients.
func byCost(scopes []*scope) []*scope {
	costs := make(map[*scope][2]int64, len(scopes)) // which may change meanwhile
	for _, s := range scopes {
		clients := s.users.Load()
		costs[s] = [2]int64{s.took.Load() / max(clients, 1), -clients}
	}
	return slices.SortedFunc(maps.Keys(costs), func(a, b *scope) int {
		return cmp.Or(cmp.Compare(costs[a][0], costs[b][0]), cmp.Compare(costs[a][1], costs[b][1]))
	})
}

// maxGivingWay is how long a scope that is being made gives way to changes. Without a limit, fast changes would keep it
// from being made.
const maxGivingWay = time.Second

// givingWay returns a function that waits while changes are brought to scopes, for maxGivingWay in all.
func (c *Catalog) givingWay() func() {
	var waited time.Duration
	return func() {
		if waited >= maxGivingWay {
			return
		}
		begin := time.Now()
		c.changing.RLock()
		defer c.changing.RUnlock()
		waited += time.Since(begin)
	}
}

// seen returns the view that the mesh was made of.
func (c *Catalog) seen() memstore.Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.last
}

// change changes the objects of keys in the mesh to those of snap, unless it is nil, and those that have no valid
// version. It returns the scopes with clients.
func (c *Catalog) change(keys []resource.Key, snap *memstore.Snapshot, synced bool) []*scope {
	c.checking.Lock()
	defer c.checking.Unlock()
	if snap == nil && !c.made.isGiven() {
		return nil // the first view will bring it
	}
	defer c.made.give()
	invalid := c.opts.Invalid()
	c.mu.Lock()
	defer c.mu.Unlock()
	var since time.Time
	if snap != nil {
		since, c.last = snap.Since(c.last.Revision()), *snap
	}
	touched := make(map[string]struct{})
	for _, key := range c.budget.admit(keys, c.last, c.mesh.Has) {
		if c.synced {
			c.changed.note(key, c.last.Revision())
		}
		r := c.last.Get(key)
		if c.budget.refused[key] > 0 {
			r = nil
		}
		delete(c.undecodable, key)
		if err := c.mesh.Set(key, r, touched); err != nil {
			c.undecodable[key] = struct{}{}
			c.log.Error("resource cannot be served to Envoys", "key", key.String(), "origin", r.Origin().String(), "err", err)
		}
	}
	c.setInvalid(invalid, touched)
	c.mesh.TouchOthers(touched)
	c.coverage.forget(keys, func(key resource.Key) bool { return c.last.Get(key) != nil })
	c.synced = c.synced || synced
	var scopes []*scope
	for s := range c.following {
		s.follow(c.mesh, touched)
		switch {
		case !s.made:
		case s.users.Load() == 0, s.behind.Load(): // the next client, or the one that waits, brings it up to date
			s.behind.Store(true)
		default:
			s.since = recent.Earlier(s.since, since)
			scopes = append(scopes, s)
		}
	}
	return scopes
}

// catchUp brings a scope up to date, in one commit, or gives up with the error of ctx. Changes of the view that come
// meanwhile do not wait, and are part of the commit. It calls pause before each part; pause may wait for changes only
// if they do not wait for the scope.
func (c *Catalog) catchUp(ctx context.Context, s *scope, pause func()) error {
	s.catching.Lock()
	defer s.catching.Unlock()
	if s.dropped {
		return nil
	}
	translated, behind := make(map[string]*translate.Translation), s.behind.Load()
	for {
		pause()
		if err := ctx.Err(); err != nil {
			c.giveUp(s, translated)
			return err
		}
		more, by, synced := c.translateSome(s, translated)
		if more {
			continue
		}
		if len(translated) > 0 || !by.Equal(s.options) {
			s.update(translated, by, c.cache.release)
		}
		if behind {
			s.group.Flush() // clients get no changes from before their connection
		}
		for _, coll := range s.all() {
			if synced {
				coll.MarkSynced()
			}
		}
		return nil
	}
}

// giveUp releases translations that a scope does not get: their hosts are stale still.
func (c *Catalog) giveUp(s *scope, translated map[string]*translate.Translation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for host, t := range translated {
		s.stale[host] = struct{}{}
		c.cache.release(t)
	}
}

// translateSome translates some of the stale hosts of a scope, and reports whether there are more. If there are none,
// it returns the options of listeners, and whether all sources were read.
func (c *Catalog) translateSome(s *scope, translated map[string]*translate.Translation) (
	more bool, options translate.ListenerOptions, synced bool,
) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s.listStale(c.mesh, translated)
	n := 0
	for host := range s.stale {
		if n++; n > model.HostsAtATime {
			break
		}
		previous, repeated := translated[host]
		translated[host] = c.translate(host, s)
		delete(s.stale, host)
		if host == model.InboundUnit && (repeated || translated[host] != s.translations[host]) {
			for unit := range s.variants {
				s.stale[unit] = struct{}{}
			}
		}
		c.cache.release(previous)
	}
	if len(s.stale) > 0 {
		return true, options, false
	}
	s.behind.Store(false)
	s.dueSince, s.since, s.made, s.revision = s.since, time.Time{}, true, c.last.Revision()
	return false, s.next, c.synced
}

// translate returns the translation of a host for a scope, which releases it to c.cache, or nil; c.mu is held.
func (c *Catalog) translate(host string, s *scope) *translate.Translation {
	p := s.profile
	p.Inbound = someInbound
	if v := s.variants[host]; v != nil {
		host, p.Inbound = model.InboundUnit, v.inbound
	}
	if host == model.InboundUnit && s.secured == nil {
		s.secured = c.mesh.Security(p, s.sidecar)
	}
	v := c.mesh.View(host, p, s.sidecar, s.secured)
	if v == nil {
		return nil
	}
	if v.Extended = s.onClusters; model.IsUnit(host) {
		v.Extended = s.next.Extension
	}
	return c.cache.acquire(index.Key(v), func() *translate.Translation { return translate.View(v, c.bodies.sharing(v)) })
}

// Collection implements xds.Catalog, for the types of Envoy. A type that is not served is not answered.
func (c *Catalog) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	p := model.ProfileOf(node)
	p.OnDemand = p.OnDemand && canOnDemand(ctx)
	if !isServed(typeURL, &p) {
		return nil, nil, xds.ErrNoAnswer
	}
	if err := p.Check(); err != nil {
		return nil, nil, err
	}
	if err := c.awaitMesh(ctx); err != nil {
		return nil, nil, err
	}
	v, release, err := c.acquire(ctx, p, node)
	if err != nil {
		return nil, nil, err
	}
	return v.collection(typeURL), release, nil
}

// acquire returns the resources for a client, which follow the view until release is called.
func (c *Catalog) acquire(ctx context.Context, p model.Profile, node *corev3.Node) (
	v *variant, release func(), err error,
) {
	var unwatch func()
	if c.asking.Do(ctx, xds.HostOf(ctx), func() { unwatch = c.narrow(&p, node, xds.ReviewerOf(ctx)) }) != nil {
		return nil, nil, status.FromContextError(ctx.Err()).Err()
	}
	outbound := p
	outbound.Inbound = ""
	s, leave, err := c.scopes.Acquire(ctx, outbound, xds.HostOf(ctx), families.Maker[*scope]{
		Estimate: func() int { return c.estimate(outbound) },
		Make:     func(ctx context.Context) (*scope, error) { return c.makeScope(ctx, outbound) },
	})
	if err != nil {
		unwatch()
		return nil, nil, err
	}
	if s.users.Add(1) == 1 {
		c.visits.Add(1)
	}
	leaveScope := sync.OnceFunc(func() {
		unwatch()
		s.users.Add(-1)
		leave()
	})
	if c.isBehind(s) {
		if waited := c.scopes.InTurn(ctx, xds.HostOf(ctx), func() { err = c.catchUp(ctx, s, func() {}) }); waited != nil {
			err = waited
		}
	}
	if err != nil {
		leaveScope()
		return nil, nil, status.FromContextError(ctx.Err()).Err()
	}
	made := newVariant(s, p)
	v, leaveVariant, err := c.variants.Acquire(ctx, p, xds.HostOf(ctx), families.Maker[*variant]{
		Estimate: made.cost, Make: func(ctx context.Context) (*variant, error) { return made, c.makeVariant(ctx, made) },
	})
	if err != nil {
		leaveScope()
		return nil, nil, err
	}
	s.awaitUpdate()
	c.warnUnenforced()
	return v, func() { leaveVariant(); leaveScope() }, nil
}

// isBehind says whether a scope lacks changes that came while it had no client. It waits for a change that does not
// count the client of the caller yet.
func (c *Catalog) isBehind(s *scope) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return s.behind.Load()
}

// narrow keeps of a profile of a node the attributes that objects select by, and adds the service ports that the node
// serves. Until leave is called, by, which may be nil, is asked for a review when these change.
func (c *Catalog) narrow(p *model.Profile, node *corev3.Node, by index.Reviewer) (leave func()) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.mesh.Selectors.Narrow(p)
	return c.mesh.Serve(p, model.AddressesOf(node), by)
}

// estimate returns the cost of a scope before it is made: a cluster and its endpoints for each port that its clients
// know.
func (c *Catalog) estimate(p model.Profile) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	cost, only := model.ScopeCost, c.mesh.SidecarFor(p)
	for _, e := range c.mesh.Entries {
		if !e.VisibleTo(p.Namespace) {
			continue
		}
		for _, host := range e.Hosts() {
			if only == nil || only.Imports(host, e.Key.Namespace, p.Namespace) {
				cost += 2 * len(e.Spec.GetPorts())
			}
		}
	}
	return cost
}

// newScope makes the resources of a profile, as if it had a client.
func (c *Catalog) newScope(p model.Profile) *variant {
	s, _ := c.makeScope(context.Background(), p) // which never ends
	s.users.Add(1)
	v := newVariant(s, p)
	_ = c.makeVariant(context.Background(), v)
	return v
}

func (c *Catalog) makeScope(ctx context.Context, p model.Profile) (*scope, error) {
	p.Inbound = ""
	s := newScope(p, c.opts.Debounce, &c.fullRoutes, &c.bodies)
	c.mu.Lock()
	s.stale = make(map[string]struct{})
	s.follow(c.mesh, c.mesh.AllHosts())
	c.following[s] = struct{}{}
	c.mu.Unlock()
	if err := c.catchUp(ctx, s, c.givingWay()); err != nil {
		c.drop(s)
		return nil, err
	}
	c.scoped.give()
	return s, nil
}

// drop has a scope follow the view no longer, and releases its translations.
func (c *Catalog) drop(s *scope) {
	c.mu.Lock()
	delete(c.following, s)
	c.mu.Unlock()
	s.catching.Lock()
	defer s.catching.Unlock()
	s.dropped = true
	for _, t := range s.translations {
		c.cache.release(t)
	}
}

// Serves says whether a type is one of Envoy's.
func Serves(typeURL string) bool { return strings.HasPrefix(typeURL, "type.googleapis.com/envoy.") }
