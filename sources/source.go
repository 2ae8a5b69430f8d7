package sources

import (
	"context"
	"time"

	"tributary/resource"
)

// Source reads one external system. It publishes state, not events: the whole content of a group (a file, one Consul
// service, one type URL) each time it changes. The Sink finds the differences.
//
// A source must tell five things apart: unreachable (report, publish nothing), denied (the same), reachable and without
// healthy endpoints (publish the service with none), gone (publish an empty group), and invalid (publish a Reject).
//
// A source writes no logs: the Sink logs each change of its objects and its health once.
type Source interface {
	// Run publishes to sink until ctx ends, and then returns ctx's error. Any other error means that it gave up: the
	// supervisor starts it again after a backoff, and its published objects stay. When Run returns, all of its
	// goroutines have ended.
	Run(ctx context.Context, sink Sink) error
}

// Sink receives the content of a source. It is safe for concurrent use; calls for one group must be in order.
type Sink interface {
	// ReplaceAll replaces the content of groups in one commit: a resource that moves from one group to another is never
	// missing in between. Each group appears once in contents. A group without resources and rejects is withdrawn.
	// The sink owns the resources from then on, and sets the source name of each origin. Resources that fail validation
	// become rejects. If several groups have a key, the first group in order of name wins, and the status lists the
	// others as conflicts; within a group, the first resource wins. The error names every reject; the valid content was
	// applied, so the source continues.
	ReplaceAll(contents []Content) error
	// Groups returns the names of the groups that hold something, in order, so that a source that starts again can
	// withdraw groups that disappeared meanwhile.
	Groups() []string
	// Synced ends the first full read. The source counts as read then, unless it has objects and all of them are invalid.
	Synced()
	// Report states the source's health. It never touches data.
	Report(Health)
}

// Content is the whole of one group.
type Content struct {
	Group string
	// Fingerprint identifies the input and the options of the content, such as by a hash; may be empty. See Confirmer.
	Fingerprint string
	// Text identifies the text itself, independent of its path and of options; may be empty. With it, the objects of a
	// broken text are found after a restart, even if it was renamed meanwhile.
	Text      string
	Resources []*resource.Resource
	Rejects   []Reject
	Warnings  []string // for people, each with place and reason; the objects were published
	// LeftOut lists instances that are not served, with the reason, for explain. It does not keep a group alive.
	LeftOut []LeftOut
	// Renamable says that the group is a file or the like: its objects may come from another group that was renamed to it
	// or joined with it.
	Renamable bool
	// RemovalsObserved says that the registry answered throughout and reported each removal, so that each missing entry
	// is certainly gone. Such losses rarely join a hold.
	RemovalsObserved bool
	Foreign          int // objects of other APIs, which are ignored
	// Others are objects of other APIs that the source itself converts. The sink ignores them.
	Others []Other
	// Unserved are parts of the Others that are not served, so that their requests fail. Warnings has them, too.
	Unserved []Unserved
}

// Unserved is a part of an object of the Gateway API, or of an Ingress, that is not served: its requests fail, or get
// another answer.
type Unserved struct {
	Object  resource.Key
	Origin  resource.Origin
	Message string // begins with the path of the field
}

// Other is an object of another API.
type Other struct {
	resource.Other

	Key    resource.Key // the name may be empty
	Origin resource.Origin
}

// Reject is an input that a source could not turn into a resource. While no group has its key, its last good version
// stays served, whichever group had it. If the name is unknown (a document too broken to tell), all objects that the
// group lost stay, and, if the group is Renamable, all objects that another group loses in the same commit. If the kind
// does not exist, it is mistyped, and objects of any kind with that namespace and name stay.
type Reject struct {
	Key         resource.Key // zero if unknown
	Foreign     bool         // it is of another API, and is no version of any object of the group
	Derives     bool         // it is foreign, and the source converts such objects
	LastGood    bool         // the source itself still publishes its last good version
	MayRestrict bool         // it may be an unknown object that restricts traffic (resource.Restricts)
	// Unread says that the whole group could not be read. Unless the group was read before, it may restrict traffic, too.
	Unread bool

	Origin resource.Origin
	Err    error // names the place, field and reason
}

// isIdentified reports whether the reject is a version of one object.
func (r Reject) isIdentified() bool {
	_, isKind := resource.SchemaOf(r.Key.Kind)
	return r.Foreign || isKind && r.Key.Name != ""
}

// hasNoName reports whether the reject may be a version of any object of the group.
func (r Reject) hasNoName() bool { return !r.Foreign && r.Key.Name == "" }

// State is the condition of a source.
type State int

// The states.
const (
	Starting    State = iota
	Healthy           // reads succeed
	Unreachable       // the system does not answer; the objects stay
	Denied            // the system refuses us; the objects stay
	Degraded          // reads succeed in part
)

// String returns the state in lower case, for logs and status.
func (s State) String() string {
	return [...]string{"starting", "healthy", "unreachable", "denied", "degraded"}[s]
}

// MarshalText makes a state readable in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Health is the condition of a source, as the source reports it.
type Health struct {
	State   State
	Message string // for people: the failure, with the address, path or key
	// Unconfirmed counts the services, instances, keys or objects that the system no longer lists and that stay.
	Unconfirmed int
	End         time.Time // their latest removal; zero without a deadline
}
