package envoy

import (
	"cmp"
	"context"
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
	// Sees reports whether clients may see the security objects of a namespace. If it is nil, they see all namespaces.
	Sees func(namespace string) bool
}

// Catalog keeps the resources of Envoys and gRPC clients in step with a view, from the first client on.
//
// Its locks (catching is locked before mu):
//   - changing: held for writing while scopes catch up with a change. New scopes give way to it (givingWay); no change
//     waits for them.
//   - scope.catching, one of each scope: held during an update of the scope. It guards the translations and options.
//   - mu: guards the mesh and the fields after it, and the stale hosts of scopes (see scope). It is held for reading
//     while hosts are translated, and briefly for writing.
type Catalog struct {
	// read-only
	view          memstore.Reader
	options       Options
	log           *slog.Logger
	beats         memstore.Beat
	scopes        *families.Set[model.Profile, *scope]        // by profile without Inbound
	workloadViews *families.Set[model.Profile, *workloadView] // of scopes in use
	profileTurns  *turns.Turns                                // of selectProfile, which keeps the mesh from changing
	firstClient   signal                                      // there was a client
	meshReady     signal                                      // the mesh has a view
	firstScope    signal                                      // there was a scope
	caughtUp      signal                                      // all scopes have a synced view

	changing sync.RWMutex

	mu             sync.RWMutex
	mesh           *index.Mesh
	last           memstore.Snapshot     // the content of the mesh
	following      map[*scope]bool       // the scopes that follow the view
	synced         bool                  // all sources were read
	undecodable    map[resource.Key]bool // objects of last
	budget         *budget
	recentChanges  changedObjects    // since the first synced view; ChangedSince reads it for rejections
	review         func()            // see SetReview; nil before that
	warned         []resource.Key    // the unenforced objects that the log has
	warnedRevision memstore.Revision // the view that warnUnenforced checked
	warnedVisits   uint64            // the visits that warnUnenforced checked

	visits atomic.Uint64 // how often a scope got its first client

	coverage   coverageCache
	fullRoutes fullRoutes
	bodies     bodies
}

// New returns a catalog of view. Clients get no answer until Run has read a view that is synced.
func New(view memstore.Reader, options Options) *Catalog {
	catalog := &Catalog{
		view:         view,
		options:      options,
		log:          cmp.Or(options.Log, slog.Default()),
		beats:        make(memstore.Beat),
		mesh:         index.NewMesh(),
		following:    make(map[*scope]bool),
		undecodable:  make(map[resource.Key]bool),
		budget:       newBudget(options.ProductBytes, cmp.Or(options.Log, slog.Default())),
		profileTurns: turns.New(1),
		firstClient:  newSignal(),
		meshReady:    newSignal(),
		firstScope:   newSignal(),
		caughtUp:     newSignal(),
	}
	catalog.mesh.Warn = options.WarnUnenforced
	catalog.mesh.GuardFilters = options.GuardFilters
	catalog.mesh.Sees = options.Sees
	catalog.scopes = families.New[model.Profile]("profiles of clients", families.Limits{
		Max: model.MaxScopes, MaxOfHost: model.MaxOfHost, MaxCost: model.MaxCost, MaxCostOfHost: model.MaxHostCost,
		MaxIdleCost: model.MaxIdleCost,
	}, (*scope).cost, catalog.dropScope)
	catalog.workloadViews = families.New[model.Profile]("sets of ports that workloads serve", families.Limits{
		Max: model.MaxWorkloadViews, MaxOfHost: model.MaxWorkloadViewsOfHost, MaxCost: model.MaxCost,
		MaxCostOfHost: model.MaxHostCost,
	}, (*workloadView).cost, catalog.dropWorkloadView)
	return catalog
}

// SetReview sets the function that lets the streams of the catalog's server request their collections once more,
// Server.Review of server/xds. It must not block.
func (c *Catalog) SetReview(review func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.review = review
}

// Alive returns at the next sign of life of Run, or with the error of ctx.
func (c *Catalog) Alive(ctx context.Context) error { return c.beats.Await(ctx) }

// update is the callback of memstore.Follow.
func (c *Catalog) update(keys []resource.Key, snapshot memstore.Snapshot, incremental, synced bool) {
	if incremental {
		c.apply(keys, snapshot, synced)
	} else {
		c.reset(snapshot, synced)
	}
}

// reset brings all scopes with clients to a snapshot: it compares all objects. synced: all sources were read.
func (c *Catalog) reset(snapshot memstore.Snapshot, synced bool) {
	c.apply(index.Differing(c.meshView(), snapshot), snapshot, synced)
}

// apply brings all scopes with clients to a snapshot that differs from the last one in the objects of keys.
func (c *Catalog) apply(keys []resource.Key, snapshot memstore.Snapshot, synced bool) {
	admitted := c.admit(keys, snapshot)
	if synced { // else clients have no content to lose
		conditions := index.SelectorsIn(admitted, snapshot)
		c.changeProfiles(func() { c.mesh.Selectors.Expect(conditions) })
	}
	c.catchUpAll(c.changeMesh(keys, admitted, snapshot, synced))
	c.changeProfiles(c.mesh.Selectors.Settle)
	if synced {
		c.caughtUp.give()
	}
	c.reviewServers()
	c.warnUnenforced()
}

// catchUpAll brings scopes up to date, in the order of byCost. It leaves one processor idle, because Go polls
// connections only on an idle one. For the same reason, new scopes wait meanwhile.
func (c *Catalog) catchUpAll(scopes []*scope) {
	c.changing.Lock()
	defer c.changing.Unlock()
	var workers errgroup.Group
	workers.SetLimit(max(runtime.GOMAXPROCS(0)-1, 1))
	for _, s := range byCost(scopes) {
		workers.Go(func() error {
			defer func(start time.Time) { s.duration.Store(int64(time.Since(start))) }(time.Now())
			return c.catchUp(context.Background(), s, func() {})
		})
	}
	_ = workers.Wait() // the context never ends
}

// byCost sorts scopes by the duration of their last update divided by their clients, so that expensive scopes do not
// delay cheap ones. Scopes with equal costs are sorted by clients.
func byCost(scopes []*scope) []*scope {
	costs := make(map[*scope][2]int64, len(scopes)) // read once: they may change during the sort
	for _, s := range scopes {
		clients := s.clients.Load()
		costs[s] = [2]int64{s.duration.Load() / max(clients, 1), -clients}
	}
	return slices.SortedFunc(maps.Keys(costs), func(a, b *scope) int {
		return cmp.Or(cmp.Compare(costs[a][0], costs[b][0]), cmp.Compare(costs[a][1], costs[b][1]))
	})
}

// maxGivingWay limits the time that a new scope gives way to changes. Without a limit, frequent changes would starve
// it.
const maxGivingWay = time.Second

// givingWay returns a function that waits while scopes catch up with changes: maxGivingWay in all its calls together.
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

// meshView returns the view that the mesh contains.
func (c *Catalog) meshView() memstore.Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.last
}

// admit returns the keys of the objects that changeMesh sets, for changed keys: the budget refuses some of these, and
// may admit others that it refused before.
func (c *Catalog) admit(keys []resource.Key, snapshot memstore.Snapshot) []resource.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.budget.admit(keys, snapshot, c.mesh.Contains)
}

// changeMesh sets the admitted objects in the mesh to their versions in snapshot, and updates the objects without a
// valid version. It returns the scopes with clients. keys are the changed objects.
func (c *Catalog) changeMesh(keys, admitted []resource.Key, snapshot memstore.Snapshot, synced bool) []*scope {
	defer c.meshReady.give()
	c.mu.Lock()
	defer c.mu.Unlock()
	changedSince := snapshot.Since(c.last.Revision())
	c.last = snapshot
	for _, key := range admitted {
		if c.synced {
			c.recentChanges.note(key, c.last.Revision())
		}
		object := c.last.Get(key)
		if c.budget.refused[key] > 0 {
			object = nil
		}
		delete(c.undecodable, key)
		if err := c.mesh.Set(key, object); err != nil {
			c.undecodable[key] = true
			c.log.Error("resource cannot be served to Envoys", "key", key.String(), "origin", object.Origin().String(), "err",
				err)
		}
	}
	c.setInvalid()
	touched := c.mesh.Touched()
	c.coverage.forget(keys, func(key resource.Key) bool { return c.last.Get(key) != nil })
	c.synced = c.synced || synced
	var scopes []*scope
	for follower := range c.following {
		follower.follow(c.mesh, touched)
		switch {
		case !follower.complete:
		case follower.clients.Load() == 0, follower.behind.Load():
			follower.behind.Store(true) // the next client, or a waiting one, brings it up to date
		default:
			follower.staleSince = recent.Earlier(follower.staleSince, changedSince)
			scopes = append(scopes, follower)
		}
	}
	return scopes
}

// catchUp brings a scope up to date in one commit, or gives up with the error of ctx. Changes that arrive meanwhile do
// not wait, and are part of the commit. It calls pause before each part; pause may wait for changes only if they do not
// wait for the scope.
func (c *Catalog) catchUp(ctx context.Context, profileScope *scope, pause func()) error {
	profileScope.catching.Lock()
	defer profileScope.catching.Unlock()
	if profileScope.dropped {
		return nil
	}
	translated := make(map[string]*translate.Translation)
	behind := profileScope.behind.Load()
	for {
		pause()
		if err := ctx.Err(); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			for host := range translated { // they remain stale
				profileScope.stale[host] = true
			}
			return err
		}
		unfinished, options, synced := c.translatePart(profileScope, translated)
		if unfinished {
			continue
		}
		if len(translated) > 0 || !options.Equal(profileScope.listenerOptions) {
			profileScope.update(translated, options)
		}
		if behind {
			profileScope.group.Flush() // clients get no changes from before their connection
		}
		for _, collection := range profileScope.list() {
			if synced {
				collection.MarkSynced()
			}
		}
		return nil
	}
}

// translatePart translates some of the stale hosts of a scope. unfinished reports that stale hosts remain; otherwise it
// returns the options of listeners, and whether all sources were read.
func (c *Catalog) translatePart(profileScope *scope, translated map[string]*translate.Translation) (
	unfinished bool, options translate.ListenerOptions, synced bool,
) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	profileScope.listStale(c.mesh, translated)
	count := 0
	for host := range profileScope.stale {
		if count++; count > model.HostsPerStep {
			break
		}
		_, repeated := translated[host]
		translated[host] = c.translate(host, profileScope)
		delete(profileScope.stale, host)
		if host == model.InboundPseudoHost && (repeated || translated[host] != profileScope.translations[host]) {
			for pseudoHost := range profileScope.workloadViews {
				profileScope.stale[pseudoHost] = true
			}
		}
	}
	if len(profileScope.stale) > 0 {
		return true, options, false
	}
	profileScope.behind.Store(false)
	profileScope.dueSince = profileScope.staleSince
	profileScope.staleSince = time.Time{}
	profileScope.complete = true
	profileScope.viewRevision = c.last.Revision()
	return false, profileScope.nextListenerOptions, c.synced
}

// translate returns the translation of a host for a scope, or nil; c.mu is held.
func (c *Catalog) translate(host string, profileScope *scope) *translate.Translation {
	profile := profileScope.profile
	profile.Inbound = sampleInbound
	if view := profileScope.workloadViews[host]; view != nil {
		host = model.InboundPseudoHost
		profile.Inbound = view.inbound
	}
	if host == model.InboundPseudoHost && profileScope.security == nil {
		profileScope.security = c.mesh.Security(profile, profileScope.sidecar)
	}
	hostView := c.mesh.View(host, profile, profileScope.sidecar, profileScope.security)
	if hostView == nil {
		return nil
	}
	hostView.Patches = profileScope.clusterPatches
	if model.IsPseudoHost(host) {
		hostView.Patches = profileScope.nextListenerOptions.Extension
	}
	return c.bodies.translations.getOrCreate(index.Key(hostView), func() *translate.Translation {
		return translate.View(hostView, c.bodies.bodyCache(hostView))
	})
}

// Collection implements xds.Catalog for the types of Envoy. It does not answer for other types.
func (c *Catalog) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	profile := model.ProfileOf(node)
	profile.OnDemand = profile.OnDemand && canOnDemand(ctx)
	if !isServed(typeURL, &profile) {
		return nil, nil, xds.ErrNoAnswer
	}
	if err := profile.Check(); err != nil {
		return nil, nil, err
	}
	if err := c.awaitMesh(ctx); err != nil {
		return nil, nil, err
	}
	view, release, err := c.acquire(ctx, profile, node)
	if err != nil {
		return nil, nil, err
	}
	return view.collection(typeURL), release, nil
}

// acquire returns the resources for a client. They follow the view until release is called.
func (c *Catalog) acquire(ctx context.Context, profile model.Profile, node *corev3.Node) (
	view *workloadView, release func(), err error,
) {
	var unwatch func()
	selectProfile := func() { unwatch = c.selectProfile(&profile, node, xds.ReviewerOf(ctx)) }
	if c.profileTurns.Do(ctx, xds.HostOf(ctx), selectProfile) != nil {
		return nil, nil, status.FromContextError(ctx.Err()).Err()
	}
	outbound := profile
	outbound.Inbound = ""
	profileScope, leave, err := c.scopes.Acquire(ctx, outbound, xds.HostOf(ctx), families.Maker[*scope]{
		Estimate: func() int { return c.estimate(outbound) },
		Make:     func(ctx context.Context) (*scope, error) { return c.makeScope(ctx, outbound) },
	})
	if err != nil {
		unwatch()
		return nil, nil, err
	}
	if profileScope.clients.Add(1) == 1 {
		c.visits.Add(1)
	}
	leaveScope := sync.OnceFunc(func() {
		unwatch()
		profileScope.clients.Add(-1)
		leave()
	})
	if c.isBehind(profileScope) {
		turnErr := c.scopes.InTurn(ctx, xds.HostOf(ctx), func() { err = c.catchUp(ctx, profileScope, func() {}) })
		if turnErr != nil {
			err = turnErr
		}
	}
	if err != nil {
		leaveScope()
		return nil, nil, status.FromContextError(ctx.Err()).Err()
	}
	created := newWorkloadView(profileScope, profile)
	view, leaveView, err := c.workloadViews.Acquire(ctx, profile, xds.HostOf(ctx), families.Maker[*workloadView]{
		Estimate: created.cost,
		Make: func(ctx context.Context) (*workloadView, error) {
			return created, c.makeWorkloadView(ctx, created)
		},
	})
	if err != nil {
		leaveScope()
		return nil, nil, err
	}
	profileScope.awaitUpdate()
	c.warnUnenforced()
	return view, func() { leaveView(); leaveScope() }, nil
}

// isBehind reports whether a scope lacks changes from a time without clients. By mu, it waits for a change of the mesh
// that began before the caller was counted as a client.
func (c *Catalog) isBehind(s *scope) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return s.behind.Load()
}

// selectProfile reduces a node's profile to the attributes that objects select by, and adds the service ports that the
// node serves. Until leave is called, it asks the reviewer, which may be nil, for a review when these ports change.
func (c *Catalog) selectProfile(profile *model.Profile, node *corev3.Node, reviewer index.Reviewer) (leave func()) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.mesh.Selectors.Narrow(profile)
	return c.mesh.Serve(profile, model.AddressesOf(node), reviewer)
}

// estimate returns the cost of a future scope: a cluster and its endpoints for each visible port.
func (c *Catalog) estimate(profile model.Profile) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	cost := model.ScopeCost
	sidecar := c.mesh.SidecarFor(profile)
	for _, entry := range c.mesh.Entries {
		if !entry.VisibleTo(profile.Namespace) {
			continue
		}
		for _, host := range entry.Hosts() {
			if sidecar == nil || sidecar.Imports(host, entry.Key.Namespace, profile.Namespace) {
				cost += 2 * len(entry.Spec.GetPorts())
			}
		}
	}
	return cost
}

// newScope creates the scope and the workload view of a profile, as if it had a client.
func (c *Catalog) newScope(profile model.Profile) *workloadView {
	s, _ := c.makeScope(context.Background(), profile) // without errors, since the context never ends
	s.clients.Add(1)
	view := newWorkloadView(s, profile)
	_ = c.makeWorkloadView(context.Background(), view)
	return view
}

func (c *Catalog) makeScope(ctx context.Context, profile model.Profile) (*scope, error) {
	profile.Inbound = ""
	created := newScope(profile, c.options.Debounce, &c.fullRoutes, &c.bodies)
	c.mu.Lock()
	created.stale = make(map[string]bool)
	created.follow(c.mesh, c.mesh.AllHosts())
	c.following[created] = true
	c.mu.Unlock()
	if err := c.catchUp(ctx, created, c.givingWay()); err != nil {
		c.dropScope(created)
		return nil, err
	}
	c.firstScope.give()
	return created, nil
}

// dropScope detaches a scope from the view, and releases its translations.
func (c *Catalog) dropScope(profileScope *scope) {
	c.mu.Lock()
	delete(c.following, profileScope)
	c.mu.Unlock()
	profileScope.catching.Lock()
	defer profileScope.catching.Unlock()
	profileScope.dropped = true
	clear(profileScope.translations)
}

// Serves reports whether a type belongs to Envoy's API.
func Serves(typeURL string) bool { return strings.HasPrefix(typeURL, "type.googleapis.com/envoy.") }
