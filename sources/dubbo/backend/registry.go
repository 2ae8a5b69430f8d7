package backend

import (
	"context"
	"errors"
	"time"

	"tributary/sources/dubbo/provider"
)

// Registry reads the registrations of providers.
type Registry interface {
	// Watch calls the listener with the whole state, and with each change, until ctx ends. It returns when all that it
	// started has ended. The error is that of ctx, or the reason why it could not begin.
	Watch(ctx context.Context, listener Listener, wanted Wanted) error
	// Metadata returns the document of a revision of an application in the metadata report, or ErrAbsent. It is called
	// while Watch runs.
	Metadata(ctx context.Context, application, revision string) ([]byte, error)
	// Mapped returns the registry's mapping: the interfaces of each application. It is called while Watch runs.
	Mapped(ctx context.Context) (byApplication map[string][]string, err error)
}

// Wanted selects the data that a registry reads, with the data of earlier runs.
type Wanted struct {
	Consumers bool                // read consumers, too
	Notes     Notes               // store the registry's own data for the next run
	Before    []PublishedProvider // the providers that an earlier run published
}

// Notes store one text of a registry for the next run.
type Notes interface {
	// LastNote returns the last note of this run or an earlier one; nil without one.
	LastNote() []byte
	Keep(note []byte)
}

// NoNotes has no notes.
type NoNotes struct{}

// LastNote implements Notes.
func (NoNotes) LastNote() []byte { return nil }

// Keep implements Notes.
func (NoNotes) Keep([]byte) {}

// PublishedProvider is a provider that an earlier run published.
type PublishedProvider struct {
	Interface, Application string
	Address                string
	Port                   int
}

// Listener receives the registry's state, not events: each call has the whole of one part. With an error other than
// Incomplete the part could not be read and its previous content stays. The methods are safe for concurrent use, do not
// block, and take over their arguments; calls about one part come in order.
type Listener interface {
	// Parts lists all parts.
	Parts(parts []Part, err error)
	// Applications lists the names that may be applications.
	Applications(names []string, err error)
	// Registered delivers the registrations of a part, or ErrAbsent if there is no such place.
	Registered(part Part, registrations []Registration, err error)
	// Instances lists the IDs of the instances of an application.
	Instances(application string, ids []string, err error)
	// Instance delivers one instance, and whether Dubbo registered it. A Failing instance counts as unlisted.
	Instance(application, id string, i provider.Instance, dubbo bool, err error)
	// CountOthers delivers the number of services that Dubbo did not register.
	CountOthers(count int)
	// Connection delivers the state of the connection, at the start and after each change.
	Connection(c Connection)
	// Healed reports that the periodic comparison found a change that no watch had reported.
	Healed(path string)
}

// Part is the place where providers, consumers or rules register for an interface. An interface may have several parts
// of one category: the name of a node of ZooKeeper has several spellings, and Nacos has a service for each version and
// group. Parts are independent.
type Part struct {
	Interface string
	Category  Category
	Node      string // its name in the registry
}

// Category is the kind of registrations in a part.
type Category string

// The categories that are read.
const (
	Providers     Category = "providers"
	Configurators Category = "configurators"
	Consumers     Category = "consumers" // see Wanted
)

// Registration is a registered URL, or why it cannot be read.
type Registration struct {
	provider.URL
	Err error
	// Unverified says that the provider was silent since the registry restarted: a published one stays, a new one
	// is not added.
	Unverified bool
	// Failing is the reason why the registry refuses calls to the provider, which counts as unlisted; empty if it is
	// healthy.
	Failing string
}

// Incomplete is an error that comes with content: the list may lack items. Published ones that it lacks stay.
type Incomplete struct {
	Err error // the reason; nil if it is reported elsewhere
}

// Error implements error.
func (i *Incomplete) Error() string {
	if i.Err == nil {
		return "the list may be incomplete"
	}
	return i.Err.Error()
}

// Unwrap returns the reason, or nil.
func (i *Incomplete) Unwrap() error {
	if i == nil {
		return nil
	}
	return i.Err
}

// ErrAbsent says that a node, document or service certainly does not exist.
var ErrAbsent = errors.New("not found")

// ErrDenied says that the registry denies a read.
var ErrDenied = errors.New("access denied")

// Connection is the state of the connection to the registry.
type Connection struct {
	Up      bool
	Fresh   bool   // Up in a new session; only counted
	Denied  bool   // not Up, because the registry refuses our credentials
	Message string // for people: why the connection is not Up, or a problem of one that is
	Certain bool   // the registry confirms each removal, so no removal is in doubt after an outage

	// Unconfirmed has the reason of each interface or application that the registry lists no longer, or in part, and that
	// stays, at most until HoldEnd.
	Unconfirmed map[string]string
	HoldEnd     time.Time
}

// Sync makes the keys of items equal to names: it adds missing items, and drops the others.
func Sync[T any](items map[string]T, names []string, add func(name string) T, drop func(T)) {
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = true
		if _, ok := items[name]; !ok {
			items[name] = add(name)
		}
	}
	for name, item := range items {
		if !listed[name] {
			drop(item)
			delete(items, name)
		}
	}
}
