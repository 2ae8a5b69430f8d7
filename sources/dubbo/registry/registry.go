// Package registry is the interface of the registries of Dubbo's providers.
package registry

import (
	"context"
	"errors"
	"time"

	"tributary/sources/dubbo/provider"
)

// Registry is where providers register.
type Registry interface {
	// Watch calls to with everything, and with each change, until ctx ends. It returns when everything that it started has
	// ended: an error of ctx, or why it could not begin.
	Watch(ctx context.Context, to Listener, w Wanted) error
	// Metadata returns the document of a revision of an application in the metadata report, or ErrAbsent. It is called
	// while Watch runs.
	Metadata(ctx context.Context, application, revision string) ([]byte, error)
	// Mapped returns the registry's mapping: the interfaces of each application. It is called while Watch runs.
	Mapped(ctx context.Context) (interfacesOf map[string][]string, err error)
}

// Wanted selects the data that a registry reads, with the data of earlier runs.
type Wanted struct {
	Consumers bool // read consumers
	// Notes keep the registry's own data for the next run. Before are the providers that an earlier run published.
	Notes  Notes
	Before []PublishedProvider
}

// Notes keep something for the next run.
type Notes interface {
	// LastNote returns the last note, of this run or an earlier one; nil if there is none.
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
	// Parts lists all parts; Applications the names of possible applications.
	Parts(parts []Part, err error)
	Applications(names []string, err error)
	// Registered delivers the registrations of a part, or ErrAbsent if there is no such place.
	Registered(part Part, registrations []Registration, err error)
	// Instances lists the ids of an application; Instance delivers one, and whether it is Dubbo's. A Failing instance
	// counts as unlisted.
	Instances(application string, ids []string, err error)
	Instance(application, id string, i provider.Instance, dubbo bool, err error)
	// CountOthers is the number of other services, which are not Dubbo's.
	CountOthers(count int)
	// Connection tells whether the registry can be reached, at the start and whenever that changes.
	Connection(c Connection)
	// Healed tells that the resync compare found a change that no watch had reported.
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
	// Unverified: not heard from since the registry restarted: a known one stays, an unknown one is not added.
	Unverified bool
	// Failing says why the registry wants no calls to it: it counts as unlisted. Empty if it is healthy.
	Failing string
}

// Incomplete is an error that comes with content: the list may lack items, and known ones that it lacks stay.
type Incomplete struct {
	Err error // why; nil if that is reported elsewhere
}

// Error implements error.
func (i *Incomplete) Error() string {
	if i.Err == nil {
		return "the list may be incomplete"
	}
	return i.Err.Error()
}

// Unwrap returns why; nil of a nil one.
func (i *Incomplete) Unwrap() error {
	if i == nil {
		return nil
	}
	return i.Err
}

// ErrAbsent says that something certainly does not exist.
var ErrAbsent = errors.New("not found")

// ErrDenied says that we have no right to read something.
var ErrDenied = errors.New("access denied")

// Connection is the state of the connection to the registry.
type Connection struct {
	Up      bool
	Fresh   bool   // Up, in a new session; only counted
	Denied  bool   // not Up: the registry refuses our credentials
	Message string // for people: why it is not up, or a problem of one that is
	Certain bool   // the registry itself confirms removals, so none is in doubt after an outage

	// Unconfirmed has the reason of each interface or application that the registry lists no longer, or in part, and that
	// stays, at most until HoldEnd.
	Unconfirmed map[string]string
	HoldEnd     time.Time
}

// Sync makes names the keys of items: it adds missing ones and drops others.
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
