package envoy

import (
	"sync"

	"tributary/server/xds"
)

// scope is what the clients of a profile are told, as collections of the engine.
type scope struct {
	// read-only
	profile                                profile
	group                                  *xds.Group // a commit of the view is one of all types
	clusters, endpoints, listeners, routes *xds.Collection

	// Hosts of which it has not what is said now. Who holds Catalog.mu may add some; who reads under it, and holds catching, takes some away.
	stale map[string]struct{}

	catching sync.Mutex       // held while it is brought up to date, which guards what follows
	told     map[string]*told // by host
	ports    map[uint32]*portRoutes
	bindings map[binding]*claimants
}

func newScope(p profile, debounce xds.Debounce) *scope {
	s := &scope{
		profile: p, group: xds.NewGroup(debounce),
		told: make(map[string]*told), ports: make(map[uint32]*portRoutes), bindings: make(map[binding]*claimants),
	}
	s.clusters = s.group.Collection(xds.TypeOf(xds.ClusterURL))
	s.endpoints = s.group.Collection(xds.TypeOf(xds.EndpointURL))
	s.listeners = s.group.Collection(xds.TypeOf(xds.ListenerURL))
	s.routes = s.group.Collection(xds.TypeOf(xds.RouteURL))
	if p.role != sidecar {
		return s
	}
	first := make(map[*xds.Collection]*xds.Commit)
	for _, c := range common() {
		put(first, s.clusters, entryOf(c))
	}
	if p.captures {
		put(first, s.listeners, entryOf(virtualOutbound()))
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
	}
	return nil
}

func isServed(typeURL string) bool {
	return typeURL == xds.ClusterURL || typeURL == xds.EndpointURL || typeURL == xds.ListenerURL || typeURL == xds.RouteURL
}

// cost is what it costs to keep the scope.
func (s *scope) cost() int {
	return scopeCost + s.clusters.Len() + s.endpoints.Len() + s.listeners.Len() + s.routes.Len()
}

func (s *scope) markSynced() {
	for _, c := range []*xds.Collection{s.clusters, s.endpoints, s.listeners, s.routes} {
		c.MarkSynced()
	}
}

// update brings the scope to what translated says of each host, which is nil for one that is not there to this profile, in one commit.
func (s *scope) update(translated map[string]*told) {
	c := &change{scope: s, commits: make(map[*xds.Collection]*xds.Commit), ports: make(map[uint32]bool), bindings: make(map[binding]bool)}
	for host, t := range translated {
		c.replace(host, t)
	}
	c.share()
	s.group.Apply(c.commits)
}

// change is a change of a scope while it is put together.
type change struct {
	*scope
	commits  map[*xds.Collection]*xds.Commit
	ports    map[uint32]bool // whose routes change
	bindings map[binding]bool
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
	c.entries(c.routes, old.routes, t.routes)
	for port := range old.hosts {
		if t.hosts[port] == nil {
			c.host(port, host, nil)
		}
	}
	for port, v := range t.hosts {
		if !old.hosts[port].equal(v) {
			c.host(port, host, v)
		}
	}
	for b := range old.claims {
		if now, still := t.claims[b]; !still || !old.created.Equal(t.created) || !now.equal(old.claims[b]) {
			c.bindings[b] = true
			c.scope.bindings[b].remove(old.created, host)
		}
	}
	for b, now := range t.claims {
		if was, had := old.claims[b]; had && old.created.Equal(t.created) && now.equal(was) {
			continue
		}
		c.bindings[b] = true
		if c.scope.bindings[b] == nil {
			c.scope.bindings[b] = new(claimants)
		}
		c.scope.bindings[b].set(t.created, host, now)
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

// host replaces the virtual host of a host among the routes of a port.
func (c *change) host(port uint32, host string, v *virtualHost) {
	if c.scope.ports[port] == nil {
		c.scope.ports[port] = new(portRoutes)
	}
	c.scope.ports[port].set(host, v)
	c.ports[port] = true
}

// share puts together what hosts share.
func (c *change) share() {
	for port := range c.ports {
		r, name := c.scope.ports[port], routeName(port)
		if r.hosts.Len() == 0 {
			delete(c.scope.ports, port)
			remove(c.commits, c.routes, name)
			continue
		}
		put(c.commits, c.routes, entryOfBytes(name, xds.RouteURL, r.encode(name)))
	}
	for b := range c.bindings {
		claimants := *c.scope.bindings[b]
		if len(claimants) == 0 {
			delete(c.scope.bindings, b)
			remove(c.commits, c.listeners, listenerName(b.address, b.port))
			continue
		}
		put(c.commits, c.listeners, entryOf(claimants.listener(b, c.profile.captures)))
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
