package xds

import (
	"bytes"
	"cmp"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// Collection is the set of resources of one type for a group of clients. It is safe for concurrent use.
type Collection struct {
	typ   Type
	group *Group

	current atomic.Pointer[state] // after the last commit
	shown   atomic.Pointer[state] // visible to streams; replaced under group.mu
	synced  atomic.Bool

	wakeups map[wakeup]int // of the subscribed streams, with the number of their subscriptions; guarded by group.mu

	base       *Collection              // of an overlay; else nil
	ownEntries *state                   // of an overlay, without base; guarded by group.commits
	overlays   map[*Collection]struct{} // the overlays of this base; changed under group.commits and group.mu
}

// Type has the rules by which the resources of a type are sent.
type Type struct {
	// URL labels the collection in metrics. Responses carry the type URL that the client asked for.
	URL string
	// Partial lets a SotW response leave out unchanged resources (RDS, EDS). Otherwise every SotW response has all
	// subscribed resources, and absence deletes.
	Partial bool
	// Rank orders the types that depend on each other on an aggregated stream: lower ranks are added to first and
	// removed from last. Types of rank zero are not ordered.
	Rank int
	// ChildURL is the type of the resources that Entry.Child names. With a new version of a parent, the child is sent
	// again: Envoy waits for it.
	ChildURL string
	// Preannounce, if not nil, gets a client's entry and the next one of that name. It returns an interim entry that
	// behaves like the old one and also names the new dependencies, and the list of those. Clients on an aggregated stream
	// that subscribe to them by name get the interim entry first, and the next one when they have the dependencies and
	// their children, or after AckTimeout. nil: no new dependencies.
	//
	// Equal arguments must give equal results; the interim version must differ from both (leave it empty). Called once per
	// change, with a stream locked: it must not block or call the server.
	Preannounce func(held, next *Entry) (interim *Entry, leads []Dependency)
	// DependencyURL is the type of the dependencies that Preannounce returns. It has a lower rank.
	DependencyURL string
	// Needs, if not nil, returns the names of the resources of the same type that an entry consists of. A client that is
	// preannounced an entry gets these, too. The rules are those of Preannounce.
	Needs func(*Entry) []string
	// OnePerResponse sends each resource in a delta response of its own: Envoy ignores all that follows a rejected
	// resource in a response. A rejection is then about one resource.
	OnePerResponse bool
	// NoWildcard makes a wildcard match no resource: it is answered like one of an empty type. Envoys begin with a
	// wildcard for virtual hosts, before they subscribe to any.
	NoWildcard bool
	// Aliases: A delta response reports a missing name as a resource with that name as alias and no content: Envoy's wait
	// for a virtual host ends only so. Resources that the client had are removed as usual.
	Aliases bool
	// Fallback, if not nil, returns the entry that a client gets instead of one that it rejects, and describes it. held is
	// the entry that the client has, nil if its content is unknown; repeated says that the client rejects the first
	// fallback, too. It returns nil if the client may keep its entry. The rules are those of Preannounce.
	Fallback func(held, rejected *Entry, repeated bool) (instead *Entry, description string)
	// Rejected, if not nil, is called with each entry that a client rejects. It must not block.
	Rejected func(*Entry)
	// NoAck says that clients do not acknowledge the type: no response waits for it.
	NoAck bool
	// Query, if not nil, is called with the names of the first request and of each that asks for something else. It puts
	// the answers into the collection, which serves this stream only and is sent whole. An error, which should carry a
	// gRPC status, ends the stream.
	Query func(names []string) error
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

// TypeOf returns the rules of the type of url: those of the protocol for an Envoy type, and full state without order
// for any other. It sets neither Preannounce nor Needs, which read the content of resources: server/envoy does.
func TypeOf(url string) Type {
	rules := Type{URL: url}
	switch url {
	case ClusterURL:
		rules.Rank = 1
		rules.ChildURL = EndpointURL
	case EndpointURL:
		rules.Rank = 2
		rules.Partial = true
	case ListenerURL:
		rules.Rank = 3
		rules.DependencyURL = ClusterURL
	case ScopedURL:
		rules.Rank = 4
	case RouteURL:
		rules.Rank = 5
		rules.Partial = true
		rules.OnePerResponse = true
		rules.DependencyURL = ClusterURL
	case VHostURL:
		rules.Rank = 6
		rules.Partial = true
		rules.NoWildcard = true
		rules.Aliases = true
	case SecretURL:
		rules.Partial = true
		rules.OnePerResponse = true
	case ExtURL, RuntimeURL:
		rules.Partial = true
	}
	return rules
}

// NewCollection returns an empty collection in a group of its own. Clients get it after MarkSynced is called.
func NewCollection(typ Type, debounce Debounce) *Collection {
	return NewGroup(debounce).Collection(typ)
}

// Commit is a set of changes that become visible at once.
type Commit struct {
	Put    []*Entry // added or replaced; they must not be changed afterwards
	Remove []string // names that do not exist are ignored
	// Reset removes everything that is not in Put.
	Reset bool
	// Version replaces the version of the collection that is derived from the content. Never use a version for two
	// contents, not even across a restart: a client with the first content would not get the second.
	Version string
	// Revision is the owner's number for the data behind the collection; see Rejection.
	Revision uint64
	// Since is when the change was made at its source, for metrics; unknown if zero.
	Since time.Time
}

// Apply makes a commit and reports whether it changed anything.
func (c *Collection) Apply(commit Commit) (changed bool) {
	return c.group.Apply(map[*Collection]*Commit{c: &commit})
}

// after returns the state after a commit to the previous one; without a change it returns the previous one.
func (c *Collection) after(previous *state, commit *Commit) *state {
	changes := make([]change, 0, len(commit.Put)+len(commit.Remove))
	if commit.Reset {
		for e := range previous.entries() {
			changes = append(changes, change{name: e.Name})
		}
	}
	for _, name := range commit.Remove {
		changes = append(changes, change{name: name})
	}
	for _, entry := range commit.Put {
		if err := entry.validate(); err != nil {
			cmp.Or(c.group.Log, slog.Default()).Error("invalid entry ignored", "type_url", c.typ.URL, "err", err)
			continue
		}
		changes = append(changes, change{entry.Name, versioned(entry)})
	}
	next := previous.apply(changes)
	if commit.Version != "" && (next.version != commit.Version || !next.given) {
		if next == previous {
			next = &state{
				revision: previous.revision + 1, sum: previous.sum, fingerprint: previous.fingerprint,
				len: previous.len, pages: previous.pages,
			}
		}
		next.version = commit.Version
		next.given = true
	}
	if next != previous {
		next.commitRevision = commit.Revision
		keepEntries := c.typ.ChildURL+c.typ.DependencyURL != ""
		next.earlier = previous.earlier.appendCommit(previous, next.replaced, keepEntries)
		next.replaced = nil
		next.times = previous.times.Append(next.revision, commit.Since)
	}
	return next
}

// MarkSynced declares the content complete, and allows it to be sent.
func (c *Collection) MarkSynced() {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.Synced() {
		return
	}
	for _, c := range append(slices.Collect(maps.Keys(c.overlays)), c) {
		c.shown.Store(c.current.Load()) // before streams may look
		c.synced.Store(true)
		c.group.hidden[c] = struct{}{}
	}
	c.group.show()
}

// TypeURL returns Type.URL.
func (c *Collection) TypeURL() string { return c.typ.URL }

// Synced says whether the content may be sent.
func (c *Collection) Synced() bool { return c.synced.Load() }

// Len returns the number of entries.
func (c *Collection) Len() int { return c.current.Load().len }

// Version returns the version of the last commit.
func (c *Collection) Version() string { return c.current.Load().version }

// Get returns the entry of name, or nil.
func (c *Collection) Get(name string) *Entry { return c.current.Load().get(name) }

// All yields the present entries in order of name.
func (c *Collection) All() iter.Seq[*Entry] { return c.current.Load().entries() }

// notify wakes the subscribed streams; the group's mutex is held. It never waits.
func (c *Collection) notify() {
	for b := range c.wakeups {
		b.notify()
	}
}

func (c *Collection) subscribe(b wakeup) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	c.wakeups[b]++
}

func (c *Collection) unsubscribe(subscriber wakeup) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.wakeups[subscriber]--; c.wakeups[subscriber] <= 0 {
		delete(c.wakeups, subscriber)
	}
}

// wakeup wakes a stream. It holds one signal: an awake stream finds all news.
type wakeup chan struct{}

func (w wakeup) notify() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// reuse is a version that a program used for two contents: clients with the first content do not get the second. Reuse
// across a restart is not detected.
type reuse struct {
	typeURL, name, version string // no name if it is the version of the collection
	count                  int
}

// reused finds reused versions in a commit that leads from previous to next.
func (c *Collection) reused(commit *Commit, previous, next *state) (result reuse) {
	result.typeURL = c.typ.URL
	if previous.given && next.given && previous.version == next.version && previous.sum != next.sum {
		result.version = next.version
		result.count = 1
	}
	if previous.len == 0 {
		return result
	}
	for _, entry := range commit.Put {
		if entry == nil {
			continue // after ignores it
		}
		if former := previous.get(entry.Name); former != nil && former != entry && former.Version == entry.Version &&
			!bytes.Equal(former.Content(), entry.Content()) {
			result.name = entry.Name
			result.version = entry.Version
			result.count++
		}
	}
	return result
}

// warn logs reuse.
func (g *Group) warn(reuses []reuse) {
	for _, r := range reuses {
		cmp.Or(g.Log, slog.Default()).Warn("a version was used again for other content: clients are not sent it",
			"type_url", r.typeURL, "name", r.name, "version", r.version, "count", r.count)
	}
}
