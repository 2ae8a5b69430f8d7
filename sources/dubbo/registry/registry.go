// Package registry says what a registry of Dubbo's providers is to their source.
package registry

import (
	"context"
	"errors"
	"strings"

	"tributary/sources/dubbo/provider"
)

// Registry is where providers register.
type Registry interface {
	// Watch reads everything, and tells to of it and of each change, until ctx ends; of consumers only if they are wanted. It returns when everything
	// that it started has ended: an error of ctx, or one that says why it could not begin.
	Watch(ctx context.Context, to Listener, consumers bool) error
	// Metadata returns what the metadata report has of a revision of an application, or ErrAbsent. It is called while Watch runs.
	Metadata(ctx context.Context, application, revision string) ([]byte, error)
	// Mapped returns the interfaces that applications are said to serve. It is called while Watch runs.
	Mapped(ctx context.Context) (interfacesOf map[string][]string, err error)
}

// Listener is told what a registry has: state, not events, each time the whole of a part. An error in place of content says that the
// part cannot be read; what was known of it stays. Its methods are safe for concurrent use, do not block, and take over what they are given;
// what concerns one part comes in order.
type Listener interface {
	// Parts are all those of what may be interfaces, and Applications the names of what may be applications.
	Parts(all []Part, err error)
	Applications(names []string, err error)
	// Registered is what is registered in a part. ErrAbsent says that there is no such place: its interface is none, or no longer, or has nobody of
	// that category.
	Registered(of Part, all []Registered, err error)
	// Instances are the ids of those of an application, and Instance is one of them: nil for one that is not Dubbo's.
	Instances(application string, ids []string, err error)
	Instance(application, id string, i *provider.Instance, err error)
	// Connection tells whether the registry can be reached, at the start and whenever that changes.
	Connection(c Connection)
	// Healed tells that a slow compare found something that had changed without a word.
	Healed(path string)
}

// Part is where those of one category register for an interface. An interface may have several parts of one category: the name of a node of ZooKeeper can be
// spelled in several ways, and Nacos has a service for each version and group. Each is told of by itself, and what cannot be said of one says nothing of another.
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
	Message string // for people, of one that is not up
}

// Mapping is the interfaces that applications are said to serve.
type Mapping map[string][]string

// Add adds what Dubbo writes for an interface: the names of applications, with commas.
func (m Mapping) Add(iface, applications string) {
	for app := range strings.SplitSeq(applications, ",") {
		if app = strings.TrimSpace(app); app != "" {
			m[app] = append(m[app], iface)
		}
	}
}
