package envoy

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// scope has the resources of the clients of a profile, as collections of the engine.
type scope struct {
	// read-only
	profile     model.Profile // without Inbound
	group       *xds.Group    // a commit of the view is one of all types
	collections               // without inbound listeners
	fullRoutes  *fullRoutes   // of all scopes
	bodies      *bodies       // the same

	variants map[string]*variant // by unit; to change it, hold Catalog.mu and catching; to read it, one of both

	// stale are hosts that changed since the scope was brought up to date. To add some, hold Catalog.mu; to remove some, hold it for reading,
	// and hold catching.
	stale      map[string]struct{}
	allStale   bool               // all hosts are, of the mesh and of the scope, instead of those in stale
	made       bool               // it had all hosts once; until then changes do not wait for it
	since      time.Time          // the first change came for which hosts are stale, or zero
	sidecar    *index.SidecarRule // by which it has them
	next       translate.ListenerOptions
	onClusters *model.Extension // the part of next.Extension that patches clusters
	extended   uint64           // the state of the mesh in which next was found out
	// secured is what security objects ask of inbound listeners, in the state of the mesh; nil until asked for. To set it, hold Catalog.mu for
	// reading, and catching.
	secured *model.Security

	took   atomic.Int64 // nanoseconds, for the last change
	users  atomic.Int64 // clients; while there are none, changes of the view only make it behind
	behind atomic.Bool  // it lacks changes, which the next client waits for

	retried sync.Map // secretTries by the names of rejected secrets

	catching     sync.Mutex                        // held while it is brought up to date, which guards what follows
	translations map[string]*translate.Translation // by host
	shared       map[string]*sharedRoutes          // by the name of the routes
	bindings     map[model.Binding]*translate.Claimants
	needs        map[string]int            // how many hosts need a secret
	options      translate.ListenerOptions // of its listeners
	dueSince     time.Time                 // what it is brought up to date with, or zero
	revision     memstore.Revision         // of the view, to which it is brought
	dropped      bool

	added        map[string][]*xds.Entry // clusters and listeners that patches add, by type
	routePatches *model.Extension        // the part of the options that patches routes

	findings findingIndex // safe for concurrent use
}

func newScope(p model.Profile, debounce xds.Debounce, wholes *fullRoutes, bodies *bodies) *scope {
	s := &scope{
		profile: p, group: xds.NewGroup(debounce), fullRoutes: wholes, bodies: bodies,
		translations: make(map[string]*translate.Translation), shared: make(map[string]*sharedRoutes),
		bindings: make(map[model.Binding]*translate.Claimants), needs: make(map[string]int),
		variants: make(map[string]*variant),
	}
	s.endpoints = s.group.Collection(xds.TypeOf(xds.EndpointURL))
	s.listeners = s.group.Collection(TypeOf(xds.ListenerURL))
	secrets := xds.TypeOf(xds.SecretURL)
	secrets.Rejected = s.retrySecret
	s.secrets = s.group.Collection(secrets)
	if p.OnDemand {
		s.clusters, s.routes, s.virtualHosts = collectionsOnDemand(s.group)
	} else {
		s.clusters, s.routes = s.group.Collection(TypeOf(xds.ClusterURL)), s.group.Collection(TypeOf(xds.RouteURL))
	}
	if p.Role == model.Proxyless {
		return s
	}
	first := make(map[*xds.Collection]*xds.Commit)
	for _, c := range translate.SidecarClusters() {
		put(first, s.clusters, translate.EntryOf(c))
	}
	if model.IsDirectory(p.Identity) {
		certificate, roots := model.IdentitySecrets(p.Identity)
		for _, name := range []string{certificate, roots} {
			s.needs[name] = 1
			put(first, s.secrets, translate.EntryOf(translate.SecretOf(name)))
		}
	}
	s.options.Captures, s.options.Transparent = p.Captures, p.Transparent
	if s.next = s.options; p.Captures {
		put(first, s.listeners, translate.EntryOf(s.options.VirtualOutbound()))
	}
	if p.Resolves {
		l, _ := translate.Resolver(nil)
		put(first, s.listeners, translate.EntryOf(l))
	}
	s.group.Apply(first)
	return s
}

// secretRetry is the time after which a secret is sent again that a client rejected: a file may have been missing or
// unfinished. It doubles up to secretRetryMax with each try.
const (
	secretRetry    = 10 * time.Second
	secretRetryMax = 80 * time.Second
)

// retrySecret sends a rejected secret again later, with other paths of the same files.
func (s *scope) retrySecret(rejected *xds.Entry) {
	tries, _ := s.retried.LoadOrStore(rejected.Name, new(secretTries))
	state := tries.(*secretTries) //nolint:errcheck // no others
	if !state.waiting.CompareAndSwap(false, true) {
		return
	}
	delay := min(secretRetry<<min(state.count.Add(1)-1, 8), secretRetryMax)
	time.AfterFunc(delay, func() {
		state.waiting.Store(false)
		s.catching.Lock()
		defer s.catching.Unlock()
		if s.dropped || s.needs[rejected.Name] == 0 {
			s.retried.Delete(rejected.Name)
			return
		}
		next := translate.EntryOf(translate.SecretOf(rejected.Name))
		if next.Version == rejected.Version {
			next = translate.EntryOf(translate.RespelledSecretOf(rejected.Name))
		}
		commits := make(map[*xds.Collection]*xds.Commit)
		put(commits, s.secrets, next)
		s.group.Apply(commits)
	})
}

// secretTries counts how often a secret was sent again.
type secretTries struct {
	waiting atomic.Bool
	count   atomic.Int64
}

// collections are what a client is served.
type collections struct {
	clusters, endpoints, listeners, routes, secrets *xds.Collection
	virtualHosts                                    *xds.Collection // for those who ask for them; else nil
}

// collection returns the collection of a type, or nil.
func (c *collections) collection(typeURL string) *xds.Collection {
	for _, coll := range c.all() {
		if coll.TypeURL() == typeURL {
			return coll
		}
	}
	return nil
}

func isServed(typeURL string, p *model.Profile) bool {
	return typeURL == xds.VHostURL && p.OnDemand ||
		slices.Contains([]string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL, xds.SecretURL}, typeURL)
}

// cost returns the cost of the scope, in resources.
func (s *scope) cost() int {
	cost := model.ScopeCost
	for _, c := range s.all() {
		cost += c.Len()
	}
	return cost
}

// follow notes that the mesh has changed for some hosts. If the scope gets another Sidecar, all its hosts are stale.
func (s *scope) follow(m *index.Mesh, touched map[string]struct{}) {
	s.secured = nil
	only := m.SidecarFor(s.profile)
	if only.Same(s.sidecar) {
		only = s.sidecar
	}
	if only != s.sidecar || s.extended != m.Extends {
		s.next.Extension, s.extended = m.Extension(s.profile, only), m.Extends
		if s.profile.Role != model.Ingress {
			s.next.Observation = m.Observation(s.profile, only)
		}
		if part := extend.Only(s.next.Extension, extend.ClusterPhases); !part.Equal(s.onClusters) {
			s.onClusters = part
			maps.Copy(s.stale, m.AllHosts())
		}
	}
	if only != s.sidecar {
		s.sidecar = only
		maps.Copy(s.stale, m.AllHosts())
	}
	s.next.Restricted = m.Restricts(s.sidecar)
	maps.Copy(s.stale, touched)
	for unit, v := range s.variants {
		if slices.ContainsFunc(v.serves, func(p model.ServicePort) bool { _, is := touched[p.Host]; return is }) {
			s.stale[unit] = struct{}{}
		}
	}
	if len(s.stale) > 2*m.Size()+len(s.variants)+64 { // hosts that came and went while there was no client
		s.allStale = true
	}
	if s.allStale {
		clear(s.stale)
	}
}

// listStale puts all hosts into stale if all are stale, among them those that the scope is about to get. Catalog.mu is held for reading,
// and catching.
func (s *scope) listStale(m *index.Mesh, translated map[string]*translate.Translation) {
	if !s.allStale {
		return
	}
	s.allStale, s.stale = false, m.AllHosts()
	for host := range s.translations {
		s.stale[host] = struct{}{}
	}
	for host := range translated {
		s.stale[host] = struct{}{}
	}
	for unit := range s.variants { // one may be about to be translated for the first time
		s.stale[unit] = struct{}{}
	}
}

// awaitUpdate waits for an update of the collections that is under way.
func (s *scope) awaitUpdate() {
	s.catching.Lock()
	defer s.catching.Unlock()
}

// all returns the collections that there are.
func (c *collections) all() []*xds.Collection {
	list := []*xds.Collection{c.clusters, c.endpoints, c.listeners, c.routes, c.secrets}
	if c.virtualHosts != nil {
		list = append(list, c.virtualHosts)
	}
	return list
}

// update replaces the translations of hosts, in one commit; nil is for a host that the profile does not see. It releases those that it
// replaces, and those that it has already.
func (s *scope) update(translated map[string]*translate.Translation, by translate.ListenerOptions, release func(*translate.Translation)) {
	c := &change{
		scope: s, commits: make(map[*xds.Collection]*xds.Commit),
		routes: make(map[string]bool), bindings: make(map[model.Binding]bool), domains: make(map[string]map[string]*translate.VirtualHost),
	}
	for host, t := range translated {
		was := s.translations[host]
		c.replace(host, t)
		release(was)
	}
	if !by.Equal(s.options) {
		c.setOptions(by)
	}
	c.includeFullRoutes()
	c.share()
	for _, commit := range c.commits {
		commit.Since, commit.Revision = s.dueSince, uint64(s.revision)
	}
	s.group.Apply(c.commits)
}

// change collects the commits of one update of a scope.
type change struct {
	*scope
	commits  map[*xds.Collection]*xds.Commit
	routes   map[string]bool // the names of shared routes that change
	bindings map[model.Binding]bool
	domains  map[string]map[string]*translate.VirtualHost // by route: see demand
	resolver bool                                         // some host has other addresses
}

// replace makes t the translation of a host.
func (c *change) replace(host string, t *translate.Translation) {
	old := c.translations[host]
	if old == t {
		return
	}
	if t == nil {
		delete(c.translations, host)
		t = &translate.Translation{}
	} else {
		c.translations[host] = t
	}
	if old == nil {
		old = &translate.Translation{}
	}
	at := c.collections
	if v := c.variants[host]; v != nil {
		at = v.collections
	}
	c.entries(c.endpoints, old.Endpoints, t.Endpoints)
	if host != model.InboundUnit {
		c.entries(at.clusters, old.Clusters, t.Clusters)
		c.entries(at.listeners, old.Listeners, t.Listeners)
	} else { // its listeners, which variants have, are instead of those of services
		of := slices.Concat(old.Listeners, t.Listeners)
		for b := range c.scope.bindings {
			name := model.ListenerName(b.Address, b.Port)
			if slices.ContainsFunc(of, func(e *xds.Entry) bool { return e.Name == name }) {
				c.bindings[b] = true
			}
		}
	}
	c.entries(c.scope.routes, old.Routes, t.Routes)
	c.need(old.Secrets, t.Secrets)
	c.findings.set("host "+host, t.Findings)
	c.resolver = c.resolver || c.profile.Resolves && !slices.Equal(old.Addresses, t.Addresses)
	for route := range old.Hosts {
		if t.Hosts[route] == nil {
			c.host(route, host, nil)
		}
	}
	for route, v := range t.Hosts {
		if !old.Hosts[route].Equal(v) {
			c.host(route, host, v)
		}
	}
	claimed, claims := old.ClaimsByBinding(), t.ClaimsByBinding()
	for b, was := range claimed {
		if now, still := claims[b]; !still || old.Compare(t.Precedence) != 0 || !now.Equal(was) {
			c.bindings[b] = true
			c.scope.bindings[b].Remove(old.ClaimPrecedence(was), host)
		}
	}
	for b, now := range claims {
		if was, had := claimed[b]; had && old.Compare(t.Precedence) == 0 && now.Equal(was) {
			continue
		}
		c.bindings[b] = true
		if c.scope.bindings[b] == nil {
			c.scope.bindings[b] = new(translate.Claimants)
		}
		c.scope.bindings[b].Set(t.ClaimPrecedence(now), host, now)
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
			put(c.commits, c.secrets, translate.EntryOf(translate.SecretOf(name)))
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
func (c *change) host(route, host string, v *translate.VirtualHost) {
	if c.shared[route] == nil {
		c.shared[route] = new(sharedRoutes)
	}
	if old, ok := c.shared[route].hosts.Get(host); ok {
		c.demand(route, old.Domains, nil)
	}
	c.shared[route].set(host, v)
	if v != nil {
		c.demand(route, v.Domains, v)
	}
	c.routes[route] = true
}

// setOptions changes the options of all listeners.
func (c *change) setOptions(by translate.ListenerOptions) {
	if by.Restricted != c.options.Restricted {
		for route := range c.shared {
			c.routes[route] = true
		}
	}
	if !by.Extension.Equal(c.options.Extension) {
		c.setExtension(by.Extension)
	}
	c.options = by
	if by.Observation != nil {
		c.findings.set("what is logged and traced", by.Observation.Findings)
	}
	for b := range c.scope.bindings {
		c.bindings[b] = true
	}
	if c.profile.Captures {
		c.putListener(by.VirtualOutbound(), networking.EnvoyFilter_SIDECAR_OUTBOUND, nil)
	}
}

// share encodes the routes and listeners that several hosts share.
func (c *change) share() {
	for route := range c.routes {
		r := c.shared[route]
		if r.hosts.Len() == 0 {
			delete(c.shared, route)
			remove(c.commits, c.scope.routes, route)
			c.findings.set("routes "+route, nil)
			continue
		}
		if c.profile.OnDemand && !c.shareOnDemand(route, r) && r.shared == 0 {
			c.findings.set("routes "+route, nil)
			continue
		}
		entry, found := c.bodies.routes(r, route, c.profile.Role, c.options.Restricted, c.routePatches)
		c.findings.set("routes "+route, found)
		if c.profile.OnDemand && !r.whole {
			continue
		}
		put(c.commits, c.scope.routes, entry)
	}
	c.shareHosts()
	if c.resolver {
		l, found := translate.Resolver(c.translations)
		c.findings.set("listener "+l.GetName(), found.Sorted())
		put(c.commits, c.listeners, c.bodies.one(translate.EntryOf(l)))
	}
	for b := range c.bindings {
		claimants, name := c.scope.bindings[b].Sorted(), model.ListenerName(b.Address, b.Port)
		if len(claimants) == 0 {
			delete(c.scope.bindings, b)
			remove(c.commits, c.listeners, name)
			c.findings.set("listener "+name, nil)
			continue
		}
		l, found := translate.Listener(b, claimants, c.options)
		if c.isInbound(name) { // which variants have instead
			found = translate.Taken(claimants, "the ingress of a Sidecar has "+model.HostPort(b.Address, b.Port))
		}
		c.putListener(l, networking.EnvoyFilter_SIDECAR_OUTBOUND, found)
	}
}

// isInbound says whether a listener is an inbound one.
func (c *change) isInbound(name string) bool {
	t := c.translations[model.InboundUnit]
	return t != nil && slices.ContainsFunc(t.Listeners, func(e *xds.Entry) bool { return e.Name == name })
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
