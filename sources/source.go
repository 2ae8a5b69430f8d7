// Package sources runs the sources of configuration: it defines what a source is, supervises it, and keeps what it
// publishes safe on its way into a store.
package sources

import (
	"context"
	"time"

	"tributary/resource"
)

// Source reads one external system. It publishes state, not events: the whole content of a group (a file, one Consul
// service, one type URL) each time it changes. What changed is worked out behind the Sink.
//
// A source must tell five things apart: unreachable (report, publish nothing), denied (the same), reachable and without
// healthy endpoints (publish the service with none), gone (publish an empty group), and invalid (publish a Reject).
//
// A source writes no logs: what it publishes and reports is logged behind the Sink, once for each change.
type Source interface {
	// Run publishes to sink until ctx ends, and then returns ctx's error. Any other error means that it gave up: the
	// supervisor starts it again after a backoff, and what it published stays. When Run returns, every goroutine that
	// it started has ended.
	Run(ctx context.Context, sink Sink) error
}

// Sink takes what a source publishes. It is safe for concurrent use; calls for one group must be in order.
type Sink interface {
	// ReplaceAll makes each of contents, which name each group once, the whole of its group, in one commit: a resource that moves from
	// one of them to another is never missing in between. A group without resources and rejects is withdrawn. The sink takes the resources
	// over and sets the source name of each origin. Resources that fail validation become rejects themselves. Where several groups have the
	// same key, the first group in order of name wins, and the others show up as conflicts; within a group it is the first resource in its
	// order. The error names every reject; all else was applied, so a source need not do more than go on.
	ReplaceAll(contents []Content) error
	// Groups returns the names of the groups that hold something, in order, so that a source that starts again can
	// withdraw what has gone in the meantime.
	Groups() []string
	// Synced says that the first full read is in. The source counts as read then, unless something was found, and nothing of it is valid.
	Synced()
	// Report states the source's health. It never touches data.
	Report(Health)
}

// Content is the whole of one group.
type Content struct {
	Group string
	// Mark identifies what the content was made of and how, such as by a hash of the file and of the options; empty if
	// nothing does. See Confirmer.
	Mark string
	// Text identifies the text itself, whatever it is called and however it is read; empty if nothing does. By it, what a broken text had is
	// found after a restart, if it has got another name meanwhile.
	Text      string
	Resources []*resource.Resource
	Rejects   []Reject
	Warnings  []string // for people, each naming the place and reason; what they are about was published all the same
	// LeftOut is what could be called and is not published. It says so to who asks, and is no reason to keep the group.
	LeftOut []LeftOut
	// Renamable says that the group may have what another had before, since it is that one by another name, or both were joined, as
	// happens with files.
	Renamable bool
	// Explained says that the source saw go by itself what the group had and has no longer: its registry answers, has done so for a while, and
	// nothing that it does not list is in doubt. See guard.Guard.ApplyExplained.
	Explained bool
	Foreign   int // objects of other APIs that the group has besides, and that were passed over
	// Others are objects of other APIs that the source itself makes something of. The sink does not look at them.
	Others []Other
	// Unattached are routes of the Gateway API that a parent does not take. The warnings say so, too.
	Unattached []Unattached
}

// Unattached is a route of the Gateway API that a parent does not take: requests that should use it get another answer.
type Unattached struct {
	Route   resource.Key
	Origin  resource.Origin
	Message string // begins with the path of the field
}

// Other is an object of another API, as a text has it.
type Other struct {
	resource.Other

	Key    resource.Key // without a name if it has none
	Origin resource.Origin
}

// Reject is something that a source read but could not turn into a resource. As long as no group has
// its key, the last good version that is served of it stays, in whichever group that was. If the name is unknown (a
// document too broken to tell), everything of the group stays that no group has any longer, and so does what goes from another
// group in the same commit, if the group is Renamable; if the kind does not exist, what has that namespace and name, of whichever
// kind, since it was mistyped.
type Reject struct {
	Key     resource.Key // zero if unknown
	Foreign bool         // it is of another API, so that nothing of the group can be meant
	// Derives says that it is foreign, and that the source makes something of such an object; LastGood, that it still does so of the last
	// good version.
	Derives, LastGood bool
	// MayRestrict says that it may be an object that restricts traffic (resource.Restricts), but that it is not known which one. Unread
	// says that nothing of the group could be read, so that it may be such an object, too, unless the group was read before.
	MayRestrict, Unread bool

	Origin resource.Origin
	Err    error // names the place, field and reason
}

// identified reports whether it can be told which object it is.
func (r Reject) identified() bool {
	_, known := resource.SchemaOf(r.Key.Kind)
	return r.Foreign || known && r.Key.Name != ""
}

// anonymous reports whether any object of the group may be meant.
func (r Reject) anonymous() bool { return !r.Foreign && r.Key.Name == "" }

// State is the condition of a source.
type State int

// The states.
const (
	Starting    State = iota
	Healthy           // reads succeed
	Unreachable       // the system does not answer; what was read stays
	Denied            // the system refuses us; what was read stays
	Degraded          // reads succeed in part
)

// String returns the state in lower case, as it is written in logs and status.
func (s State) String() string {
	return [...]string{"starting", "healthy", "unreachable", "denied", "degraded"}[s]
}

// MarshalText makes a state readable in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Health is what a source says of itself.
type Health struct {
	State   State
	Message string // for people: what failed, with the address, path or key
	// Unconfirmed counts the services, instances, keys or objects that the system no longer lists and that stay.
	Unconfirmed int
	End         time.Time // when they go at the latest; zero if that is open
}
