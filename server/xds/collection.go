package xds

import (
	"cmp"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"
)

// Collection is the set of resources of one type, as a group of clients sees it. It is safe for concurrent use.
type Collection struct {
	typ   Type
	group *Group

	current atomic.Pointer[state] // after the last commit
	shown   atomic.Pointer[state] // what streams see of it; it is replaced under group.mu
	synced  atomic.Bool

	bells map[bell]int // of the subscribed streams, with how many subscriptions each has here; guarded by group.mu
}

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
	// Introduce, if not nil, makes of an entry of the type that a client has, and of the next one of that name, an interim
	// version that does what the former does, and by which a client that asks for resources of LeadsURL by name learns of those
	// that the latter leads to besides, which leads says. On an aggregated stream such a client is sent the interim version
	// first, and the next one when it has those resources, and their children, or the acknowledgement timeout has passed. It is
	// nil if there is nothing new to lead to, or Introduce does not know the entries.
	//
	// Equal arguments must have equal results, so that replicas agree, and the interim version must not have the version of
	// either entry; it may be left empty. Introduce is called once for each change of an entry between two states, not for each
	// client, from any goroutine, and while a stream is locked: it must not wait, nor call the server.
	Introduce func(has, next *Entry) (interim *Entry, leads []Lead)
	// LeadsURL is the type of the resources that Introduce speaks of. It has a lower rank.
	LeadsURL string
	// Needs, if not nil, returns the names of what an entry of the type consists of, which are of the same type and for which a
	// client asks that was told of it. Who is introduced to it is introduced to those, too. The rules are those of Introduce.
	Needs func(*Entry) []string
	// OnePerResponse sends each resource in a delta response of its own: Envoy takes nothing of a response that comes after what it
	// rejects, and a rejection is then of one resource.
	OnePerResponse bool
	// ByName hands resources out by name only: a wildcard stands for none, and is answered as one of an empty type is. Envoys begin
	// with one for virtual hosts, before they ask for any.
	ByName bool
	// Aliases says in a delta response that a name is not there by a resource of that name and alias without content, as Envoy has it of
	// virtual hosts: a request that waits for one would not hear of it otherwise. What a client had is removed as any other.
	Aliases bool
	// NoAck says that clients do not acknowledge the type: nothing waits for it.
	NoAck bool
	// Ask, if not nil, makes the names that clients ask for questions, and the resources of the type answers: it is called with the names of
	// the first request of a stream, and of each that asks for something, and puts into the collection what they are to be answered
	// with. That is sent as a whole. Such a collection is that of one stream. An error, which should carry a gRPC status, ends the stream.
	Ask func(names []string) error
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
// any other. server/envoy adds what is read in their content, by Introduce and Needs.
func TypeOf(url string) Type {
	t := Type{URL: url}
	switch url {
	case ClusterURL:
		t.Rank, t.ChildURL = 1, EndpointURL
	case EndpointURL:
		t.Rank, t.Partial = 2, true
	case ListenerURL:
		t.Rank, t.LeadsURL = 3, ClusterURL
	case ScopedURL:
		t.Rank = 4
	case RouteURL:
		t.Rank, t.Partial, t.OnePerResponse, t.LeadsURL = 5, true, true, ClusterURL
	case VHostURL:
		t.Rank, t.Partial, t.ByName, t.Aliases = 6, true, true, true
	case SecretURL:
		t.Partial, t.OnePerResponse = true, true
	case ExtURL, RuntimeURL:
		t.Partial = true
	}
	return t
}

// NewCollection returns an empty collection in a group of its own, of which nothing is sent until MarkSynced is called.
func NewCollection(typ Type, debounce Debounce) *Collection {
	return NewGroup(debounce).Collection(typ)
}

// Commit is a set of changes that become visible at once.
type Commit struct {
	Put    []*Entry // added or replaced; the collection takes them over
	Remove []string // names that are not there are ignored
	// Reset removes everything that is not in Put.
	Reset bool
	// Version becomes the version of the collection as it stands, in place of the one derived from the content. A version
	// must never be used for two contents, not even before and after a restart: a client that has the one would be taken to
	// have the other. Versions derived from the content cannot be.
	Version string
	// Revision counts what the collection is made of, as its owner does; see Rejection.
	Revision uint64
	// Since is when what it says came about at its source, for metrics; unknown if zero.
	Since time.Time
}

// Apply makes a commit and reports whether it changed anything.
func (c *Collection) Apply(commit Commit) (changed bool) {
	return c.group.Apply(map[*Collection]*Commit{c: &commit})
}

// after returns the state after a commit, which is the current one if nothing changes.
func (c *Collection) after(commit *Commit) *state {
	old := c.current.Load()
	changes := make([]change, 0, len(commit.Put)+len(commit.Remove))
	if commit.Reset {
		for e := range old.all() {
			changes = append(changes, change{name: e.Name})
		}
	}
	for _, name := range commit.Remove {
		changes = append(changes, change{name: name})
	}
	for _, e := range commit.Put {
		if wrong := e.wrong(); wrong != nil {
			cmp.Or(c.group.Log, slog.Default()).Error("an entry is left out", "type_url", c.typ.URL, "err", wrong)
			continue
		}
		changes = append(changes, change{e.Name, versioned(e)})
	}
	next := old.with(changes)
	if commit.Version != "" && (next.version != commit.Version || !next.given) {
		if next == old {
			next = &state{revision: old.revision + 1, sum: old.sum, print: old.print, len: old.len, pages: old.pages, minTTL: old.minTTL}
		}
		next.version, next.given = commit.Version, true
	}
	if next != old {
		next.made = commit.Revision
		next.earlier, next.replaced = old.earlier.with(old.print, next.replaced), nil
		next.times = old.times.With(next.revision, commit.Since)
	}
	return next
}

// MarkSynced says that the content is complete, and lets it be sent.
func (c *Collection) MarkSynced() {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.Synced() {
		return
	}
	c.shown.Store(c.current.Load()) // before anybody may look
	c.synced.Store(true)
	c.group.hidden[c] = struct{}{}
	c.group.show()
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

// ring wakes the subscribed streams; the group's mutex is held. Ringing never waits.
func (c *Collection) ring() {
	for b := range c.bells {
		b.ring()
	}
}

func (c *Collection) subscribe(b bell) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	c.bells[b]++
}

func (c *Collection) unsubscribe(b bell) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
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
