package xds

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// Collection is the set of resources of one type, as a group of clients sees it. It is safe for concurrent use; commits
// take their turns, and readers never wait.
type Collection struct {
	typ      Type
	debounce Debounce

	current atomic.Pointer[state]
	synced  atomic.Bool

	mu     sync.Mutex
	bells  map[bell]int // of the subscribed streams, with how many subscriptions each has here
	timer  *time.Timer  // non-nil while a ringing is due
	oldest time.Time    // of the commits that wait for it
}

// Debounce delays the announcement of a commit until none followed for Quiet, but by no more than Max. Zero announces at
// once. A stream that looks for another reason sees the newest state all the same.
type Debounce struct{ Quiet, Max time.Duration }

// Type says how the resources of a type are to be sent.
type Type struct {
	// URL labels the collection in metrics. Responses carry the type URL that the client asked for.
	URL string
	// Partial allows a SotW response to leave out what has not changed (RDS, EDS): absence then says nothing. Otherwise
	// every SotW response is the whole of what the client subscribed to, and absence deletes.
	Partial bool
	// Rank orders the types that depend on each other on an aggregated stream: lower ranks are added to first and
	// removed from last. Types of rank zero are not ordered.
	Rank int
	// ChildURL is the type of the resources that Entry.Child names. A client that got a new version of a parent is sent the
	// child again, since Envoy waits for it.
	ChildURL string
	// NoAck says that clients do not acknowledge the type: nothing waits for it.
	NoAck bool
}

// The Envoy types that have rules of their own.
const (
	ClusterURL  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerURL = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteURL    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	SecretURL   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	RuntimeURL  = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	ExtURL      = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	ScopedURL   = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	VHostURL    = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// TypeOf returns the rules of the type of url: those of the protocol for an Envoy type, and full state without order for
// any other.
func TypeOf(url string) Type {
	t := Type{URL: url}
	switch url {
	case ClusterURL:
		t.Rank, t.ChildURL = 1, EndpointURL
	case EndpointURL:
		t.Rank, t.Partial = 2, true
	case ListenerURL:
		t.Rank = 3
	case ScopedURL:
		t.Rank = 4
	case RouteURL:
		t.Rank, t.Partial = 5, true
	case VHostURL:
		t.Rank, t.Partial = 6, true
	case SecretURL, ExtURL, RuntimeURL:
		t.Partial = true
	}
	return t
}

// NewCollection returns an empty collection, of which nothing is sent until MarkSynced is called.
func NewCollection(typ Type, debounce Debounce) *Collection {
	c := &Collection{typ: typ, debounce: debounce, bells: make(map[bell]int)}
	s := &state{revision: 1}
	s.version = s.sum.String()
	c.current.Store(s)
	return c
}

// Commit is a set of changes that become visible at once.
type Commit struct {
	Put    []*Entry // added or replaced; the collection takes them over
	Remove []string // names that are not there are ignored
	// Reset removes everything that is not in Put.
	Reset bool
	// Version becomes the version of the collection as it stands, in place of the one derived from the content.
	Version string
}

// Apply makes a commit and reports whether it changed anything.
func (c *Collection) Apply(commit Commit) (changed bool) {
	changes := make([]change, 0, len(commit.Put)+len(commit.Remove))
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.current.Load()
	if commit.Reset {
		for e := range old.all() {
			changes = append(changes, change{name: e.Name})
		}
	}
	for _, name := range commit.Remove {
		changes = append(changes, change{name: name})
	}
	for _, e := range commit.Put {
		changes = append(changes, change{e.Name, e})
	}
	next := old.with(changes)
	if commit.Version != "" && next.version != commit.Version {
		if next == old {
			next = &state{revision: old.revision + 1, sum: old.sum, len: old.len, pages: old.pages, minTTL: old.minTTL}
		}
		next.version = commit.Version
	}
	if next == old {
		return false
	}
	c.current.Store(next)
	c.announce()
	return true
}

// MarkSynced says that the content is complete, and lets it be sent.
func (c *Collection) MarkSynced() {
	if c.synced.Swap(true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring()
}

// Synced says whether the content may be sent.
func (c *Collection) Synced() bool { return c.synced.Load() }

// Len returns the number of entries.
func (c *Collection) Len() int { return c.current.Load().len }

// Version returns the version that clients see.
func (c *Collection) Version() string { return c.current.Load().version }

// Get returns the entry of name, or nil.
func (c *Collection) Get(name string) *Entry { return c.current.Load().get(name) }

// All yields the entries in order of name, as they are at this moment.
func (c *Collection) All() iter.Seq[*Entry] { return c.current.Load().all() }

// announce rings the bells when the debounce allows; c.mu is held.
func (c *Collection) announce() {
	if c.debounce.Quiet <= 0 {
		c.ring()
		return
	}
	now := time.Now()
	if c.timer == nil {
		c.oldest = now
		c.timer = time.AfterFunc(c.debounce.Quiet, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.timer = nil
			c.ring()
		})
		return
	}
	wait := c.debounce.Quiet
	if c.debounce.Max > 0 {
		wait = min(wait, c.debounce.Max-now.Sub(c.oldest))
	}
	if c.timer.Stop() { // else it is about to ring and will show this commit too
		c.timer.Reset(max(wait, 0))
	}
}

// ring wakes the subscribed streams; c.mu is held. Ringing never waits.
func (c *Collection) ring() {
	for b := range c.bells {
		b.ring()
	}
}

func (c *Collection) subscribe(b bell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bells[b]++
}

func (c *Collection) unsubscribe(b bell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bells[b]--; c.bells[b] <= 0 {
		delete(c.bells, b)
	}
}

// bell wakes a stream. It holds one ring: a stream that is awake finds everything that is new.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
