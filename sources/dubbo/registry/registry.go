// Package registry says what a registry of Dubbo's providers is to their source.
package registry

import (
	"context"
	"errors"

	"tributary/sources/dubbo/provider"
)

// Registry is where providers register.
type Registry interface {
	// Watch reads everything, and tells to of it and of each change, until ctx ends. It returns when everything that it started has ended: an
	// error of ctx, or one that says why it could not begin.
	Watch(ctx context.Context, to Listener, w Wanted) error
	// Metadata returns what the metadata report has of a revision of an application, or ErrAbsent. It is called while Watch runs.
	Metadata(ctx context.Context, application, revision string) ([]byte, error)
	// Mapped returns the interfaces that applications are said to serve. It is called while Watch runs.
	Mapped(ctx context.Context) (interfacesOf map[string][]string, err error)
}

// Wanted is what is wanted of a registry, and what it may use for it.
type Wanted struct {
	Consumers bool // whether it is wanted what applications consume
	// Notes are for what a registry has to know of earlier runs; nil if nothing is kept. Before is what an earlier run published.
	Notes  Notes
	Before []Known
}

// Notes keep something for the next run.
type Notes interface {
	// Kept returns what Keep was given last, by this run or an earlier one; nil if there is nothing.
	Kept() []byte
	Keep(note []byte)
}

// Known is a provider that an earlier run published: of which interface, and of which application.
type Known struct {
	Interface, Application string
	Address                string
	Port                   int
}

// Listener is told what a registry has: state, not events, each time the whole of a part. An error in place of content says that the
// part cannot be read; what was known of it stays. An Incomplete comes with content. Its methods are safe for concurrent use, do not block,
// and take over what they are given; what concerns one part comes in order.
type Listener interface {
	// Parts are all those of what may be interfaces, and Applications the names of what may be applications.
	Parts(all []Part, err error)
	Applications(names []string, err error)
	// Registered is what is registered in a part. ErrAbsent says that there is no such place: its interface is none, or no longer, or has
	// nobody of that category.
	Registered(of Part, all []Registered, err error)
	// Instances are the ids of those of an application, and Instance is one of them: nil for one that is not Dubbo's.
	// One that is Failing is as if it were not listed.
	Instances(application string, ids []string, err error)
	Instance(application, id string, i *provider.Instance, err error)
	// Others is how many services there are that are not Dubbo's and that nothing else is told of.
	Others(count int)
	// Connection tells whether the registry can be reached, at the start and whenever that changes.
	Connection(c Connection)
	// Healed tells that a slow compare found something that had changed without a word.
	Healed(path string)
}

// Part is where those of one category register for an interface. An interface may have several parts of one category: the name of a node of
// ZooKeeper can be spelled in several ways, and Nacos has a service for each version and group. Each is told of by itself, and what cannot
// be said of one says nothing of another.
type Part struct {
	Interface string
	Category  Category
	Node      string // that it is in the registry
}

// Category is what registers in a part.
type Category string

// The categories that are read.
const (
	Providers     Category = "providers"
	Configurators Category = "configurators"
	Consumers     Category = "consumers" // only if they are wanted
)

// Registered is what somebody registered, or why that cannot be read.
type Registered struct {
	provider.URL
	Err error
	// Silent says that it need not live, as nobody has heard of it since the registry began anew: who was known stays, and who was not is
	// none.
	Silent bool
	// Failing says why the registry does not have it called: it is as if it were not listed. Empty if it has.
	Failing string
}

// Incomplete is an error that comes with content: there may be more, which cannot be read, and what was known of that stays.
type Incomplete struct {
	Err error // why; nil if that is said elsewhere
}

// Error implements error.
func (i *Incomplete) Error() string {
	if i.Err == nil {
		return "there may be more"
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

// ErrAbsent says that something is not there, for certain.
var ErrAbsent = errors.New("it is not there")

// ErrDenied says that we may not read something.
var ErrDenied = errors.New("we may not read it")

// Connection is the state of that to the registry.
type Connection struct {
	Up      bool
	Fresh   bool   // Up, and nothing that was known of earlier holds: the session is a new one
	Denied  bool   // not Up, as the registry does not take us for who we say
	Message string // for people, of one that is not up, or of what is the matter with one that is
	// Certain says that the registry makes sure of what it does not list any more: that is not in doubt, however long it was away.
	Certain bool
}
