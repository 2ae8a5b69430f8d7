package envoy

import (
	"maps"
	"sync"
	"time"

	"tributary/memstore"
	"tributary/server/xds"
)

// scope is what the clients of a profile are told, as collections of the engine.
type scope struct {
	// read-only
	profile                                         profile
	group                                           *xds.Group // a commit of the view is one of all types
	clusters, endpoints, listeners, routes, secrets *xds.Collection
	virtualHosts                                    *xds.Collection // for those who ask for them; else nil
	wholes                                          *wholes         // of all scopes
	bodies                                          *bodies         // the same

	// Hosts of which it has not what is said now. Who holds Catalog.mu may add some; who reads under it, and holds catching, takes some away.
	stale      map[string]struct{}
	made       bool         // it had all hosts once; until then nobody waits for it
	since      time.Time    // the first change came about for which they are stale, or zero
	only       *sidecarRule // by which it has them
	restricted bool         // to what it knows
	seen       *observation // what it logs and traces
	observed   uint64       // the state of the mesh in which that was found out

	catching sync.Mutex               // held while it is brought up to date, which guards what follows
	told     map[string]*told         // by host
	shared   map[string]*sharedRoutes // by the name of the routes
	bindings map[binding]*claimants
	needs    map[string]int    // how many hosts need a secret
	manner   manner            // of the listeners of which it was told
	begun    time.Time         // what it is brought up to date with, or zero
	revision memstore.Revision // of the view, to which it is brought
	dropped  bool

	notes notebook // safe for concurrent use
}

func newScope(p profile, debounce xds.Debounce, wholes *wholes, bodies *bodies) *scope {
	s := &scope{
		profile: p, group: xds.NewGroup(debounce), wholes: wholes, bodies: bodies,
		told: make(map[string]*told), shared: make(map[string]*sharedRoutes), bindings: make(map[binding]*claimants), needs: make(map[string]int),
	}
	s.endpoints = s.group.Collection(xds.TypeOf(xds.EndpointURL))
	s.listeners = s.group.Collection(xds.TypeOf(xds.ListenerURL))
	s.secrets = s.group.Collection(xds.TypeOf(xds.SecretURL))
	if p.onDemand {
		s.clusters, s.routes, s.virtualHosts = collectionsOnDemand(s.group)
	} else {
		s.clusters, s.routes = s.group.Collection(xds.TypeOf(xds.ClusterURL)), s.group.Collection(xds.TypeOf(xds.RouteURL))
	}
	if p.role == proxyless {
		return s
	}
	first := make(map[*xds.Collection]*xds.Commit)
	for _, c := range common() {
		put(first, s.clusters, entryOf(c))
	}
	if s.manner.captures, s.manner.intact = p.captures, p.intact; p.captures {
		put(first, s.listeners, entryOf(s.manner.virtualOutbound()))
	}
	s.group.Apply(first)
	return s
}

// collection returns the collection of a type, or nil.
func (s *scope) collection(typeURL string) *xds.Collection {
	switch typeURL {
	case xds.ClusterURL:
		return s.clusters
	case xds.EndpointURL:
		return s.endpoints
	case xds.ListenerURL:
		return s.listeners
	case xds.RouteURL:
		return s.routes
	case xds.SecretURL:
		return s.secrets
	case xds.VHostURL:
		return s.virtualHosts
	}
	return nil
}

func isServed(typeURL string, p *profile) bool {
	switch typeURL {
	case xds.VHostURL:
		return p.onDemand
	case xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL, xds.SecretURL:
		return true
	}
	return false
}

// cost is what it costs to keep the scope.
func (s *scope) cost() int {
	cost := scopeCost
	for _, c := range s.all() {
		cost += c.Len()
	}
	return cost
}

func (s *scope) markSynced() {
	for _, c := range s.all() {
		c.MarkSynced()
	}
}

// follow has the scope follow a mesh in which what is said of some hosts has changed. If another Sidecar is for it, all hosts may be otherwise.
func (s *scope) follow(m *mesh, touched map[string]struct{}) {
	only := m.sidecarFor(s.profile)
	if only.same(s.only) {
		only = s.only
	}
	if s.profile.role != ingress && (only != s.only || s.observed != m.observes) {
		s.seen, s.observed = m.observation(s.profile, only), m.observes
	}
	if only != s.only {
		s.only = only
		maps.Copy(s.stale, m.allHosts())
	}
	s.restricted = m.restricts(s.only)
	maps.Copy(s.stale, touched)
}

// all returns the collections that there are.
func (s *scope) all() []*xds.Collection {
	list := []*xds.Collection{s.clusters, s.endpoints, s.listeners, s.routes, s.secrets}
	if s.virtualHosts != nil {
		list = append(list, s.virtualHosts)
	}
	return list
}

// update brings the scope to what translated says of each host, which is nil for one that is not there to this profile, in one commit. It
// gives back what it has no more, or twice.
func (s *scope) update(translated map[string]*told, by manner, release func(*told)) {
	c := &change{
		scope: s, commits: make(map[*xds.Collection]*xds.Commit),
		routes: make(map[string]bool), bindings: make(map[binding]bool), domains: make(map[string]map[string]*virtualHost),
	}
	for host, t := range translated {
		was := s.told[host]
		c.replace(host, t)
		release(was)
	}
	if !by.equal(s.manner) {
		c.conduct(by)
	}
	c.shareWholes()
	c.share()
	for _, commit := range c.commits {
		commit.Since, commit.Revision = s.begun, uint64(s.revision)
	}
	s.group.Apply(c.commits)
}

// change is a change of a scope while it is put together.
type change struct {
	*scope
	commits  map[*xds.Collection]*xds.Commit
	routes   map[string]bool // that change
	bindings map[binding]bool
	domains  map[string]map[string]*virtualHost // by route: see demand
}

// replace makes t what is told of a host.
func (c *change) replace(host string, t *told) {
	old := c.told[host]
	if old == t {
		return
	}
	if t == nil {
		delete(c.told, host)
		t = &told{}
	} else {
		c.told[host] = t
	}
	if old == nil {
		old = &told{}
	}
	c.entries(c.clusters, old.clusters, t.clusters)
	c.entries(c.endpoints, old.endpoints, t.endpoints)
	c.entries(c.listeners, old.listeners, t.listeners)
	c.entries(c.scope.routes, old.routes, t.routes)
	c.need(old.secrets, t.secrets)
	c.notes.set("host "+host, t.findings)
	for route := range old.hosts {
		if t.hosts[route] == nil {
			c.host(route, host, nil)
		}
	}
	for route, v := range t.hosts {
		if !old.hosts[route].equal(v) {
			c.host(route, host, v)
		}
	}
	claimed, claims := old.claimsByBinding(), t.claimsByBinding()
	for b, was := range claimed {
		if now, still := claims[b]; !still || old.compare(t.seniority) != 0 || !now.equal(was) {
			c.bindings[b] = true
			c.scope.bindings[b].remove(old.rankOf(was), host)
		}
	}
	for b, now := range claims {
		if was, had := claimed[b]; had && old.compare(t.seniority) == 0 && now.equal(was) {
			continue
		}
		c.bindings[b] = true
		if c.scope.bindings[b] == nil {
			c.scope.bindings[b] = new(claimants)
		}
		c.scope.bindings[b].set(t.rankOf(now), host, now)
	}
}

// entries replaces entries of a collection.
func (c *change) entries(coll *xds.Collection, old, now []*xds.Entry) {
	names := make(map[string]bool, len(now))
	for _, e := range now {
		names[e.Name] = true
		put(c.commits, coll, e)
	}
	for _, e := range old {
		if !names[e.Name] {
			remove(c.commits, coll, e.Name)
		}
	}
}

// need replaces the secrets that a host needs.
func (c *change) need(old, now []string) {
	for _, name := range now {
		if c.needs[name]++; c.needs[name] == 1 {
			put(c.commits, c.secrets, entryOf(secretOf(name)))
		}
	}
	for _, name := range old {
		if c.needs[name]--; c.needs[name] == 0 {
			delete(c.needs, name)
		}
	}
	for _, name := range old {
		if c.needs[name] == 0 {
			remove(c.commits, c.secrets, name)
		}
	}
}

// host replaces the virtual host of a host among some routes.
func (c *change) host(route, host string, v *virtualHost) {
	if c.shared[route] == nil {
		c.shared[route] = new(sharedRoutes)
	}
	if old, ok := c.shared[route].hosts.Get(host); ok {
		c.demand(route, old.domains, nil)
	}
	c.shared[route].set(host, v)
	if v != nil {
		c.demand(route, v.domains, v)
	}
	c.routes[route] = true
}

// conduct has all listeners be in a manner.
func (c *change) conduct(by manner) {
	if by.restricted != c.manner.restricted {
		for route := range c.shared {
			c.routes[route] = true
		}
	}
	c.manner = by
	if by.seen != nil {
		c.notes.set("what is logged and traced", by.seen.findings)
	}
	for b := range c.scope.bindings {
		c.bindings[b] = true
	}
	if c.profile.captures {
		put(c.commits, c.listeners, entryOf(by.virtualOutbound()))
	}
}

// share puts together what hosts share.
func (c *change) share() {
	for route := range c.routes {
		r := c.shared[route]
		if r.hosts.Len() == 0 {
			delete(c.shared, route)
			remove(c.commits, c.scope.routes, route)
			c.notes.set("routes "+route, nil)
			continue
		}
		if c.profile.onDemand && !c.shareOnDemand(route, r) && r.shared == 0 {
			c.notes.set("routes "+route, nil)
			continue
		}
		body, found := r.encode(route, c.profile.role, c.manner.restricted)
		c.notes.set("routes "+route, found.sorted())
		if c.profile.onDemand && !r.whole {
			continue
		}
		put(c.commits, c.scope.routes, c.bodies.one(entryOfBytes(route, xds.RouteURL, body)))
	}
	c.shareHosts()
	for b := range c.bindings {
		claimants := *c.scope.bindings[b]
		if len(claimants) == 0 {
			delete(c.scope.bindings, b)
			remove(c.commits, c.listeners, listenerName(b.address, b.port))
			c.notes.set("listener "+listenerName(b.address, b.port), nil)
			continue
		}
		l, found := b.listener(claimants, c.manner)
		c.notes.set("listener "+l.GetName(), found.sorted())
		if len(l.GetFilterChains()) == 0 && l.GetDefaultFilterChain() == nil {
			remove(c.commits, c.listeners, l.GetName()) // Envoy wants one
			continue
		}
		if c.profile.onDemand {
			onDemand(l)
		}
		put(c.commits, c.listeners, c.bodies.one(entryOf(l)))
	}
}

func commitOf(commits map[*xds.Collection]*xds.Commit, coll *xds.Collection) *xds.Commit {
	if commits[coll] == nil {
		commits[coll] = &xds.Commit{}
	}
	return commits[coll]
}

func put(commits map[*xds.Collection]*xds.Commit, coll *xds.Collection, e *xds.Entry) {
	commit := commitOf(commits, coll)
	commit.Put = append(commit.Put, e)
}

func remove(commits map[*xds.Collection]*xds.Commit, coll *xds.Collection, name string) {
	commit := commitOf(commits, coll)
	commit.Remove = append(commit.Remove, name)
}
