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
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"tributary/internal/recent"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/families"
	"tributary/server/xds"
)

// Options of a Catalog. The zero value is usable.
type Options struct {
	Debounce xds.Debounce // of every collection
	Log      *slog.Logger // slog.Default if nil
	// Hearing is how long other clients are given to say what they think of what one has rejected. One second if zero.
	Hearing time.Duration
	// File keeps what is in quarantine across restarts. It is not kept if empty. While it is written, there is another one besides it, of which the name begins with a dot
	// and then as that of the file.
	File       string
	Registerer prometheus.Registerer // metrics are not exported if nil
	// AllowUnenforced has clients send plaintext where ISTIO_MUTUAL is wanted, and nobody told of security objects that they do not enforce.
	AllowUnenforced bool

	patience time.Duration // with a whole hearing; hearingPatience if zero
}

// Profiles are made up by clients, so what they cost is bounded.
const (
	maxScopes    = 1000 // in use at once
	maxOfHost    = 100
	maxCost      = 10_000_000 // of the scopes in use, in entries
	maxHostCost  = 1_000_000
	maxIdleCost  = 200_000 // of the scopes without clients that are kept, in entries
	scopeCost    = 1000    // of one, besides its entries
	maxProfile   = 64 << 10
	hostsAtATime = 100 // are translated before a commit of the view may come in between
)

// Catalog keeps what Envoys and gRPC clients are told in step with a view.
type Catalog struct {
	// read-only
	view    memstore.Reader
	opts    Options
	log     *slog.Logger
	beats   memstore.Beat
	scopes  *families.Set[profile, *scope]
	judge   *judge
	metrics metrics
	logged  *rate.Limiter // lines in the log that clients cause

	mu         sync.RWMutex // who reads the mesh translates; who changes it is quick
	mesh       *mesh
	quarantine *quarantine
	last       memstore.Snapshot   // of which the mesh is, but for what is in quarantine
	following  map[*scope]struct{} // the view
	synced     bool
	apart      uint64 // up to which lookout clients are told apart

	warning sync.Mutex
	warned  []resource.Key // that are not enforced, as the log has it; guarded by warning

	keeping sync.Mutex // held while the file is written
	file    string     // guarded by keeping: empty for none
	rests   bool       // guarded by keeping: the file is not written

	booths booths

	units  units
	looks  looks
	wholes wholes
	bodies bodies
}

// New returns a catalog of view. Nothing of it is sent until Run has read a view that is synced.
func New(view memstore.Reader, opts Options) *Catalog {
	c := &Catalog{view: view, opts: opts, log: cmp.Or(opts.Log, slog.Default()), beats: make(memstore.Beat), judge: newJudge(cmp.Or(opts.Hearing, defaultHearing), cmp.Or(opts.patience, hearingPatience)), mesh: newMesh(), quarantine: newQuarantine(), following: make(map[*scope]struct{})}
	c.mesh.plaintext = opts.AllowUnenforced
	c.metrics, c.logged, c.file = newMetrics(opts.Registerer, c), rate.NewLimiter(1, 20), opts.File
	c.restore()
	c.scopes = families.New[profile]("profiles of clients", families.Limits{
		Max: maxScopes, MaxOfHost: maxOfHost, MaxCost: maxCost, MaxCostOfHost: maxHostCost, MaxIdleCost: maxIdleCost,
	}, (*scope).cost, c.drop)
	return c
}

// Run follows the view, and hears what clients complain of, until ctx ends.
func (c *Catalog) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var hearing sync.WaitGroup
	hearing.Go(func() { c.hear(ctx) })
	defer hearing.Wait()
	defer stop()
	return memstore.Follow(ctx, c.view, c.beats, c.update)
}

// Alive returns when it is known that Run goes on, or with the error of ctx.
func (c *Catalog) Alive(ctx context.Context) error { return c.beats.Await(ctx) }

// update brings all scopes to snap. Unless incremental, keys do not tell what changed and everything is looked at.
func (c *Catalog) update(keys []resource.Key, snap memstore.Snapshot, incremental, synced bool) {
	come := c.foresee(c.coming(keys, snap, incremental, synced))
	c.catchUpAll(c.change(keys, snap, incremental, synced))
	come()
	c.keep()
	c.warnUnenforced()
}

// coming yields the objects that come with a change of the view: none as long as clients are not told anything, and all when they are to be told for the first time.
func (c *Catalog) coming(keys []resource.Key, snap memstore.Snapshot, incremental, synced bool) iter.Seq[*resource.Resource] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case !c.synced && !synced:
		return func(func(*resource.Resource) bool) {}
	case !c.synced, !incremental:
		return snap.All()
	}
	return func(yield func(*resource.Resource) bool) {
		for _, key := range keys {
			if r := snap.Get(key); r != nil && !yield(r) {
				return
			}
		}
	}
}

func (c *Catalog) catchUpAll(scopes []*scope) {
	var workers sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, s := range scopes {
		turns <- struct{}{}
		workers.Go(func() {
			_ = c.catchUp(context.Background(), s) // which never ends
			<-turns
		})
	}
	workers.Wait()
}

// change brings the mesh to snap, and returns the scopes that follow it.
func (c *Catalog) change(keys []resource.Key, snap memstore.Snapshot, incremental, synced bool) []*scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !incremental {
		keys = c.mesh.differing(snap)
	}
	since := snap.Since(c.last.Revision())
	scopes := c.set(keys, snap)
	for _, s := range scopes {
		s.since = recent.Earlier(s.since, since)
	}
	c.synced = c.synced || synced
	return scopes
}

// set has the mesh be what objects are in snap, or what is to be in their place, and returns the scopes that follow it; c.mu is held. An object
// that was there from the start is nobody's change.
func (c *Catalog) set(keys []resource.Key, snap memstore.Snapshot) []*scope {
	last := c.last
	c.last = snap
	changed, touched := make(map[string]struct{}), make(map[string]struct{})
	for _, key := range keys {
		was, now := last.Get(key), snap.Get(key)
		bears := changed
		if was != nil && now != nil && was.Version() == now.Version() {
			bears = touched // it is just told otherwise
		}
		r := c.quarantine.admit(key, was, now, c.synced)
		if err := c.mesh.set(key, r, bears); err != nil {
			c.log.Error("resource cannot be served to Envoys", "key", key.String(), "origin", r.Origin().String(), "err", err)
		}
	}
	if c.synced {
		c.parole(changed)
	}
	maps.Copy(touched, changed)
	c.mesh.touchOthers(touched)
	c.looks.forget(keys, func(key resource.Key) bool { return snap.Get(key) != nil })
	for s := range c.following {
		c.follow(s, touched)
	}
	return slices.Collect(func(yield func(*scope) bool) {
		for s := range c.following {
			if s.made && !yield(s) {
				return
			}
		}
	})
}

// parole tries those in quarantine once more that bear on what has changed: it may have been with that that they were rejected. That just endpoints
// changed does not count. It adds on what these bear to changed; c.mu is held.
func (c *Catalog) parole(changed map[string]struct{}) {
	if len(c.quarantine.asides) == 0 || len(changed) == 0 {
		return
	}
	moved := c.mesh.moved
	c.mesh.moved = make(map[string]struct{})
	company := maps.Clone(changed)
	c.mesh.touchOthers(company)
	c.mesh.moved = moved
	for _, t := range c.quarantine.parole(func(a *aside) bool { return meet(c.bears(a.trial), company) }) {
		_ = c.mesh.set(t.key, t.now, changed) // that it cannot be decoded was said when it came
	}
}

func meet(a, b map[string]struct{}) bool {
	for host := range a {
		if _, ok := b[host]; ok {
			return true
		}
	}
	return false
}

// catchUp brings a scope up to date, in one commit, or gives up with the error of ctx. Commits of the view that come meanwhile are not held up, and are
// part of it.
func (c *Catalog) catchUp(ctx context.Context, s *scope) error {
	s.catching.Lock()
	defer s.catching.Unlock()
	if s.dropped {
		return nil
	}
	translated := make(map[string]*told)
	for {
		if err := ctx.Err(); err != nil {
			for _, t := range translated {
				c.units.release(t)
			}
			return err
		}
		more, by, synced := c.translateSome(s, translated)
		if more {
			continue
		}
		if len(translated) > 0 || !by.equal(s.manner) {
			s.update(translated, by, c.units.release)
		}
		if synced {
			s.markSynced()
		}
		return nil
	}
}

// translateSome translates some of the hosts of which the scope has not what is said now, and reports whether there are more, and if not, how
// listeners are, and whether what is said is complete.
func (c *Catalog) translateSome(s *scope, translated map[string]*told) (more bool, by manner, synced bool) {
	c.translateHosts(s, func() {
		n := 0
		for host := range s.stale {
			if n++; n > hostsAtATime {
				more = true
				return
			}
			c.units.release(translated[host])
			translated[host] = c.translate(host, s.profile, s.only)
			delete(s.stale, host)
		}
		s.begun, s.since, s.made = s.since, time.Time{}, true
		by, synced = manner{s.profile.captures, s.profile.intact, s.restricted, s.seen}, c.synced
	})
	return more, by, synced
}

// translate returns what clients of a profile are told of a host, for a scope that gives it back to c.units, or nil; c.mu is held.
func (c *Catalog) translate(host string, p profile, only *sidecarRule) *told {
	v := c.mesh.view(host, p, only)
	if v == nil {
		return nil
	}
	return c.units.acquire(v.key(), func() *told { return translate(v) })
}

// Collection implements xds.Catalog, for the types of Envoy. A type that is not served is not answered.
func (c *Catalog) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	p := profileOf(node)
	p.onDemand = p.onDemand && canOnDemand(ctx)
	if !isServed(typeURL, &p) {
		return nil, nil, xds.ErrNoAnswer
	}
	if err := p.check(); err != nil {
		return nil, nil, err
	}
	c.narrow(&p)
	stream := xds.StreamOf(ctx)
	if b := c.booths.of(stream); b != nil {
		if s := b.enter(c, p); s != nil {
			return s.collection(typeURL), func() { b.left(); c.judge.leave(stream, typeURL) }, nil
		}
	}
	s, release, err := c.scopes.Acquire(ctx, p, xds.HostOf(ctx), c.maker(p))
	if err != nil {
		return nil, nil, err
	}
	return s.collection(typeURL), func() { release(); c.judge.leave(stream, typeURL) }, nil
}

// narrow leaves of a client what it may be told apart by.
func (c *Catalog) narrow(p *profile) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.mesh.lookouts.narrow(p)
}

// maker makes the scope of a profile.
func (c *Catalog) maker(p profile) families.Maker[*scope] {
	return families.Maker[*scope]{
		Estimate: func() int { return c.estimate(p) },
		Make:     func(ctx context.Context) (*scope, error) { return c.makeScope(ctx, p) },
	}
}

// estimate is what the scope of a profile will cost: a cluster and its endpoints for each port that its clients know.
func (c *Catalog) estimate(p profile) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	cost, only := scopeCost, c.mesh.sidecarFor(p)
	for _, e := range c.mesh.entries {
		if !e.visibleTo(p.namespace) {
			continue
		}
		for _, host := range e.hosts() {
			if only == nil || only.imports(host, e.key.Namespace, p.namespace) {
				cost += 2 * len(e.spec.GetPorts())
			}
		}
	}
	return cost
}

// newScope makes a scope that follows the view, but for what is tried with its client.
func (c *Catalog) newScope(p profile, tried ...*aside) *scope {
	s, _ := c.makeScope(context.Background(), p, tried...) // which never ends
	return s
}

func (c *Catalog) makeScope(ctx context.Context, p profile, tried ...*aside) (*scope, error) {
	s := newScope(p, c.opts.Debounce, &c.wholes, &c.bodies)
	s.tried, s.private = tried, len(tried) > 0
	c.mu.Lock()
	s.stale = make(map[string]struct{})
	c.follow(s, c.mesh.allHosts())
	c.following[s] = struct{}{}
	c.mu.Unlock()
	if err := c.catchUp(ctx, s); err != nil {
		c.drop(s)
		return nil, err
	}
	c.warnUnenforced()
	return s, nil
}

// drop ends that a scope follows the view, and that it keeps what it was told of.
func (c *Catalog) drop(s *scope) {
	c.mu.Lock()
	delete(c.following, s)
	c.mu.Unlock()
	s.catching.Lock()
	defer s.catching.Unlock()
	s.dropped = true
	for _, t := range s.told {
		c.units.release(t)
	}
}

// Serves says whether a type is one of Envoy's.
func Serves(typeURL string) bool { return strings.HasPrefix(typeURL, "type.googleapis.com/envoy.") }
