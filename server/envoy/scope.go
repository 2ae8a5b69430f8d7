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

// scope holds the resources of the clients of a profile, as collections of the engine.
type scope struct {
	// read-only
	profile     model.Profile // without Inbound
	group       *xds.Group    // commits all types together
	collections               // without inbound listeners
	fullRoutes  *fullRoutes   // of all scopes
	bodies      *bodies       // of all scopes

	// The view of each pseudo-host. It changes under Catalog.mu and catching; either is enough to read it.
	workloadViews map[string]*workloadView

	// State of the mesh that the scope has or lacks. It changes under Catalog.mu, or under catching together with
	// Catalog.mu for reading; with the latter, hosts are only removed from stale.
	stale               map[string]bool // hosts that changed since the scope was brought up to date
	allStale            bool            // all hosts of the mesh and of the scope are stale
	complete            bool            // it had all hosts once; before that, changes do not wait for it
	staleSince          time.Time       // the arrival of the first change that made hosts stale, or zero
	sidecar             *index.Sidecar  // that selects the hosts
	nextListenerOptions translate.ListenerOptions
	clusterPatches      *model.Extension // the part of nextListenerOptions.Extension that patches clusters
	extensionChanges    uint64           // the state of the mesh that nextListenerOptions reflects
	security            *model.Security  // the rules for inbound listeners, in the state of the mesh; nil until used

	duration atomic.Int64 // nanoseconds, for the last change
	clients  atomic.Int64 // while there are none, changes of the view only make it behind
	behind   atomic.Bool  // it lacks changes, and the next client waits for them

	secretRetries sync.Map // secretTries by the names of rejected secrets

	catching        sync.Mutex                        // held during an update; guards the following fields
	translations    map[string]*translate.Translation // by host
	shared          map[string]*sharedRoutes          // by the name of the routes
	bindings        map[model.Binding]*translate.Claimants
	secretUsers     map[string]int            // how many hosts need a secret
	listenerOptions translate.ListenerOptions // of the served listeners
	dueSince        time.Time                 // the arrival of the first change in the update, or zero
	viewRevision    memstore.Revision         // of the view, after the update
	dropped         bool

	addedByPatches map[string][]*xds.Entry // clusters and listeners that patches add, by type
	routePatches   *model.Extension        // the part of the options that patches routes

	findings findingIndex // safe for concurrent use
}

func newScope(profile model.Profile, debounce xds.Debounce, full *fullRoutes, bodies *bodies) *scope {
	created := &scope{
		profile:       profile,
		group:         xds.NewGroup(debounce),
		fullRoutes:    full,
		bodies:        bodies,
		translations:  make(map[string]*translate.Translation),
		shared:        make(map[string]*sharedRoutes),
		bindings:      make(map[model.Binding]*translate.Claimants),
		secretUsers:   make(map[string]int),
		workloadViews: make(map[string]*workloadView),
	}
	created.endpoints = created.group.Collection(xds.TypeOf(xds.EndpointURL))
	created.listeners = created.group.Collection(TypeOf(xds.ListenerURL))
	secrets := xds.TypeOf(xds.SecretURL)
	secrets.Rejected = created.retrySecret
	created.secrets = created.group.Collection(secrets)
	if profile.OnDemand {
		created.clusters, created.routes, created.virtualHosts = collectionsOnDemand(created.group)
	} else {
		created.clusters = created.group.Collection(TypeOf(xds.ClusterURL))
		created.routes = created.group.Collection(TypeOf(xds.RouteURL))
	}
	if profile.Role == model.Proxyless {
		return created
	}
	initial := make(commits)
	for _, c := range translate.SidecarClusters() {
		initial.put(created.clusters, translate.EntryOf(c))
	}
	if model.IsDirectory(profile.Identity) {
		certificate, roots := model.IdentitySecrets(profile.Identity)
		for _, name := range []string{certificate, roots} {
			created.secretUsers[name] = 1
			initial.put(created.secrets, translate.EntryOf(translate.SecretOf(name)))
		}
	}
	created.listenerOptions.Captures = profile.Captures
	created.listenerOptions.Transparent = profile.Transparent
	created.nextListenerOptions = created.listenerOptions
	if profile.Captures {
		initial.put(created.listeners, translate.EntryOf(created.listenerOptions.VirtualOutbound()))
	}
	if profile.Resolves {
		listener, _ := translate.Resolver(nil)
		initial.put(created.listeners, translate.EntryOf(listener))
	}
	created.group.Apply(initial)
	return created
}

// secretRetry is the delay before a rejected secret is sent again: a file may have been missing or unfinished. The
// delay doubles up to secretRetryMax with each try.
const (
	secretRetry    = 10 * time.Second
	secretRetryMax = 80 * time.Second
)

// retrySecret sends a rejected secret again later, with other paths of the same files.
func (s *scope) retrySecret(rejected *xds.Entry) {
	tries, _ := s.secretRetries.LoadOrStore(rejected.Name, new(secretTries))
	state := tries.(*secretTries) //nolint:errcheck // the only type
	if !state.waiting.CompareAndSwap(false, true) {
		return
	}
	delay := min(secretRetry<<min(state.count.Add(1)-1, 8), secretRetryMax)
	time.AfterFunc(delay, func() {
		state.waiting.Store(false)
		s.catching.Lock()
		defer s.catching.Unlock()
		if s.dropped || s.secretUsers[rejected.Name] == 0 {
			s.secretRetries.Delete(rejected.Name)
			return
		}
		next := translate.EntryOf(translate.SecretOf(rejected.Name))
		if next.Version == rejected.Version {
			next = translate.EntryOf(translate.RespelledSecretOf(rejected.Name))
		}
		changes := make(commits)
		changes.put(s.secrets, next)
		s.group.Apply(changes)
	})
}

// secretTries counts the retries of a secret.
type secretTries struct {
	waiting atomic.Bool
	count   atomic.Int64
}

// collections has the resources for a client, by type.
type collections struct {
	clusters, endpoints, listeners, routes, secrets *xds.Collection
	virtualHosts                                    *xds.Collection // for on-demand clients; else nil
}

// collection returns the collection of a type, or nil.
func (c *collections) collection(typeURL string) *xds.Collection {
	for _, collection := range c.list() {
		if collection.TypeURL() == typeURL {
			return collection
		}
	}
	return nil
}

func isServed(typeURL string, profile *model.Profile) bool {
	return typeURL == xds.VHostURL && profile.OnDemand ||
		slices.Contains([]string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL, xds.SecretURL}, typeURL)
}

// cost returns the cost of the scope, in resources.
func (s *scope) cost() int {
	cost := model.ScopeCost
	for _, c := range s.list() {
		cost += c.Len()
	}
	return cost
}

// follow marks hosts of the mesh as stale. A new Sidecar makes all hosts stale.
func (s *scope) follow(mesh *index.Mesh, touched map[string]bool) {
	s.security = nil
	sidecar := mesh.SidecarFor(s.profile)
	if sidecar.Same(s.sidecar) {
		sidecar = s.sidecar
	}
	if sidecar != s.sidecar || s.extensionChanges != mesh.ExtensionChanges {
		s.nextListenerOptions.Extension = mesh.Extension(s.profile, sidecar)
		s.extensionChanges = mesh.ExtensionChanges
		if s.profile.Role != model.Ingress {
			s.nextListenerOptions.Observation = mesh.Observation(s.profile, sidecar)
		}
		if part := extend.Only(s.nextListenerOptions.Extension, extend.ClusterPhases); !part.Equal(s.clusterPatches) {
			s.clusterPatches = part
			maps.Copy(s.stale, mesh.AllHosts())
		}
	}
	if sidecar != s.sidecar {
		s.sidecar = sidecar
		maps.Copy(s.stale, mesh.AllHosts())
	}
	s.nextListenerOptions.Restricted = mesh.Restricts(s.sidecar)
	maps.Copy(s.stale, touched)
	for pseudoHost, view := range s.workloadViews {
		if slices.ContainsFunc(view.servedPorts, func(p model.ServicePort) bool { return touched[p.Host] }) {
			s.stale[pseudoHost] = true
		}
	}
	if len(s.stale) > 2*mesh.Size()+len(s.workloadViews)+64 { // hosts that appeared and vanished without a client
		s.allStale = true
	}
	if s.allStale {
		clear(s.stale)
	}
}

// listStale lists all hosts in stale if all are stale, with those that the scope is about to get. Catalog.mu is held
// for reading, and catching.
func (s *scope) listStale(mesh *index.Mesh, translated map[string]*translate.Translation) {
	if !s.allStale {
		return
	}
	s.allStale = false
	s.stale = mesh.AllHosts()
	for host := range s.translations {
		s.stale[host] = true
	}
	for host := range translated {
		s.stale[host] = true
	}
	for pseudoHost := range s.workloadViews { // a new view may have no translation yet
		s.stale[pseudoHost] = true
	}
}

// awaitUpdate waits for the end of a current update of the collections.
func (s *scope) awaitUpdate() {
	s.catching.Lock()
	defer s.catching.Unlock()
}

// list returns the collections that exist.
func (c *collections) list() []*xds.Collection {
	list := []*xds.Collection{c.clusters, c.endpoints, c.listeners, c.routes, c.secrets}
	if c.virtualHosts != nil {
		list = append(list, c.virtualHosts)
	}
	return list
}

// update replaces the translations of hosts in one commit. nil stands for a host that the profile does not see.
func (s *scope) update(translated map[string]*translate.Translation, options translate.ListenerOptions) {
	pending := &change{
		scope: s, commits: make(commits),
		routes: make(map[string]bool), bindings: make(map[model.Binding]bool),
		domains: make(map[string]map[string]*translate.VirtualHost),
	}
	for host, translation := range translated {
		pending.replace(host, translation)
	}
	if !options.Equal(s.listenerOptions) {
		pending.setOptions(options)
	}
	pending.includeFullRoutes()
	pending.share()
	for _, commit := range pending.commits {
		commit.Since = s.dueSince
		commit.Revision = uint64(s.viewRevision)
	}
	s.group.Apply(pending.commits)
}

// change collects the commits of one update of a scope.
type change struct {
	*scope
	commits
	routes           map[string]bool // the names of shared routes that change
	bindings         map[model.Binding]bool
	domains          map[string]map[string]*translate.VirtualHost // by route: see demand
	addressesChanged bool                                         // the addresses of a host changed
}

// replace sets the translation of a host.
func (c *change) replace(host string, translation *translate.Translation) {
	previous := c.translations[host]
	if previous == translation {
		return
	}
	if translation == nil {
		delete(c.translations, host)
		translation = &translate.Translation{}
	} else {
		c.translations[host] = translation
	}
	if previous == nil {
		previous = &translate.Translation{}
	}
	target := c.collections
	if view := c.workloadViews[host]; view != nil {
		target = view.collections
	}
	c.replaceEntries(c.endpoints, previous.Endpoints, translation.Endpoints)
	if host != model.InboundPseudoHost {
		c.replaceEntries(target.clusters, previous.Clusters, translation.Clusters)
		c.replaceEntries(target.listeners, previous.Listeners, translation.Listeners)
	} else { // its listeners, which workload views have, replace those of services
		inbound := slices.Concat(previous.Listeners, translation.Listeners)
		for binding := range c.scope.bindings {
			name := model.ListenerName(binding.Address, binding.Port)
			if slices.ContainsFunc(inbound, func(entry *xds.Entry) bool { return entry.Name == name }) {
				c.bindings[binding] = true
			}
		}
	}
	c.replaceEntries(c.scope.routes, previous.Routes, translation.Routes)
	c.replaceSecrets(previous.Secrets, translation.Secrets)
	c.findings.set("host "+host, translation.Findings)
	if c.profile.Resolves && !slices.Equal(previous.Addresses, translation.Addresses) {
		c.addressesChanged = true
	}
	for route := range previous.Hosts {
		if translation.Hosts[route] == nil {
			c.replaceHost(route, host, nil)
		}
	}
	for route, virtualHost := range translation.Hosts {
		if !previous.Hosts[route].Equal(virtualHost) {
			c.replaceHost(route, host, virtualHost)
		}
	}
	c.replaceClaims(host, previous, translation)
}

// replaceClaims replaces the claims of a host.
func (c *change) replaceClaims(host string, previous, next *translate.Translation) {
	samePrecedence := previous.Compare(next.Precedence) == 0
	before, after := previous.ClaimsByBinding(), next.ClaimsByBinding()
	for binding, claim := range before {
		if nextClaim, remains := after[binding]; remains && samePrecedence && nextClaim.Equal(claim) {
			delete(after, binding)
			continue
		}
		c.bindings[binding] = true
		c.scope.bindings[binding].Remove(previous.ClaimPrecedence(claim), host)
	}
	for binding, claim := range after {
		c.bindings[binding] = true
		if c.scope.bindings[binding] == nil {
			c.scope.bindings[binding] = new(translate.Claimants)
		}
		c.scope.bindings[binding].Set(next.ClaimPrecedence(claim), host, claim)
	}
}

// replaceEntries replaces entries of a collection.
func (c *change) replaceEntries(collection *xds.Collection, previous, next []*xds.Entry) {
	names := make(map[string]bool, len(next))
	for _, entry := range next {
		names[entry.Name] = true
		c.put(collection, entry)
	}
	for _, entry := range previous {
		if !names[entry.Name] {
			c.remove(collection, entry.Name)
		}
	}
}

// replaceSecrets replaces the secrets of a host.
func (c *change) replaceSecrets(previous, next []string) {
	for _, name := range next {
		c.secretUsers[name]++
		if c.secretUsers[name] == 1 {
			c.put(c.secrets, translate.EntryOf(translate.SecretOf(name)))
		}
	}
	for _, name := range previous {
		c.secretUsers[name]--
		if c.secretUsers[name] == 0 {
			delete(c.secretUsers, name)
		}
	}
	for _, name := range previous {
		if c.secretUsers[name] == 0 {
			c.remove(c.secrets, name)
		}
	}
}

// replaceHost replaces the virtual host of a host among some routes.
func (c *change) replaceHost(route, host string, virtualHost *translate.VirtualHost) {
	if c.shared[route] == nil {
		c.shared[route] = new(sharedRoutes)
	}
	if old, ok := c.shared[route].hosts.Get(host); ok {
		c.noteDemand(route, old.Domains, nil)
	}
	c.shared[route].set(host, virtualHost)
	if virtualHost != nil {
		c.noteDemand(route, virtualHost.Domains, virtualHost)
	}
	c.routes[route] = true
}

// setOptions changes the options of all listeners.
func (c *change) setOptions(options translate.ListenerOptions) {
	if options.Restricted != c.listenerOptions.Restricted {
		for route := range c.shared {
			c.routes[route] = true
		}
	}
	if !options.Extension.Equal(c.listenerOptions.Extension) {
		c.setExtension(options.Extension)
	}
	c.listenerOptions = options
	if options.Observation != nil {
		c.findings.set("logs and traces", options.Observation.Findings)
	}
	for binding := range c.scope.bindings {
		c.bindings[binding] = true
	}
	if c.profile.Captures {
		c.putListener(options.VirtualOutbound(), networking.EnvoyFilter_SIDECAR_OUTBOUND, nil)
	}
}

// share encodes the routes and listeners that hosts share.
func (c *change) share() {
	for route := range c.routes {
		routes := c.shared[route]
		if routes.hosts.Len() == 0 {
			delete(c.shared, route)
			c.remove(c.scope.routes, route)
			c.findings.set("routes "+route, nil)
			continue
		}
		if c.profile.OnDemand && !c.shareOnDemand(route, routes) && routes.duplicates == 0 {
			c.findings.set("routes "+route, nil)
			continue
		}
		encoded := c.bodies.encode(routes, route, c.profile.Role, c.listenerOptions.Restricted, c.routePatches)
		c.findings.set("routes "+route, encoded.findings)
		if c.profile.OnDemand && !routes.inFull {
			continue
		}
		routes.encoded = encoded
		c.put(c.scope.routes, encoded.entry)
	}
	c.shareHosts()
	if c.addressesChanged {
		listener, findings := translate.Resolver(c.translations)
		c.findings.set("listener "+listener.GetName(), findings.Sorted())
		c.put(c.listeners, c.bodies.intern(translate.EntryOf(listener)))
	}
	for binding := range c.bindings {
		claimants := c.scope.bindings[binding].Sorted()
		name := model.ListenerName(binding.Address, binding.Port)
		if len(claimants) == 0 {
			delete(c.scope.bindings, binding)
			c.remove(c.listeners, name)
			c.findings.set("listener "+name, nil)
			continue
		}
		listener, findings := translate.Listener(binding, claimants, c.listenerOptions)
		if c.isInbound(name) { // workload views have the inbound listener instead
			findings = translate.Taken(claimants, "the ingress of a Sidecar has "+model.HostPort(binding.Address, binding.Port))
		}
		c.putListener(listener, networking.EnvoyFilter_SIDECAR_OUTBOUND, findings)
	}
}

// isInbound reports whether a listener is inbound.
func (c *change) isInbound(name string) bool {
	translation := c.translations[model.InboundPseudoHost]
	return translation != nil && slices.ContainsFunc(translation.Listeners,
		func(entry *xds.Entry) bool { return entry.Name == name })
}

// commits are the commits of an update that is being built, by collection.
type commits map[*xds.Collection]*xds.Commit

func (c commits) commit(collection *xds.Collection) *xds.Commit {
	if c[collection] == nil {
		c[collection] = &xds.Commit{}
	}
	return c[collection]
}

func (c commits) put(collection *xds.Collection, entry *xds.Entry) {
	commit := c.commit(collection)
	commit.Put = append(commit.Put, entry)
}

func (c commits) remove(collection *xds.Collection, name string) {
	commit := c.commit(collection)
	commit.Remove = append(commit.Remove, name)
}
