// Package access says who may see what: rules of the configuration, of which the first that a client matches decides. What it does not
// allow is to the client as if it were not there.
package access

import (
	"fmt"
	"slices"
	"strings"

	"tributary/resource"
	"tributary/server/xds"
)

// Allow is what a rule allows. A list that is empty limits nothing; and services are all allowed only if nothing is limited.
type Allow struct {
	Kinds      []string // of objects
	Namespaces []string // of objects; the empty one stands for those that have none
	Sources    []string // of objects, by name
	Types      []string // of Envoy, by their short names: see Types
	Services   []string // of gRPC besides xDS, and of the admin server
}

// Services that are allowed by name.
const (
	Reflection = "reflection" // of the gRPC server: which services and messages there are
	Channelz   = "channelz"   // of the gRPC server: who is connected
	CSDS       = "csds"       // who is connected, and what he was sent
	Debug      = "debug"      // what istioctl asks over xDS: the same, and more
	Admin      = "admin"      // what changes something on the admin server
)

// Services returns those that are allowed by name.
func Services() []string { return []string{Reflection, Channelz, CSDS, Debug, Admin} }

// types are Envoy's by their short names.
func types() map[string]string {
	return map[string]string{
		"clusters": xds.ClusterURL, "endpoints": xds.EndpointURL, "listeners": xds.ListenerURL, "routes": xds.RouteURL,
		"virtualHosts": xds.VHostURL, "secrets": xds.SecretURL,
	}
}

// Types returns the short names of Envoy's types.
func Types() []string {
	return []string{"clusters", "endpoints", "listeners", "routes", "virtualHosts", "secrets"}
}

// Allowed is an Allow put in order: equal ones are those with an equal key. It is not modified. A nil *Allowed allows everything.
type Allowed struct {
	kinds, namespaces, sources, types, services globs // nil for no limit
	key                                         string
}

// New puts a in order; nil if it limits nothing.
func New(a Allow) *Allowed {
	all := &Allowed{ordered(a.Kinds), ordered(a.Namespaces), ordered(a.Sources), ordered(a.Types), ordered(a.Services), ""}
	if len(all.kinds)+len(all.namespaces)+len(all.sources)+len(all.types)+len(all.services) == 0 {
		return nil
	}
	all.key = fmt.Sprintf("%q", []globs{all.kinds, all.namespaces, all.sources, all.types, all.services})
	return all
}

func ordered(list []string) globs {
	if len(list) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// Key tells those that differ apart. It is empty for nil.
func (a *Allowed) Key() string {
	if a == nil {
		return ""
	}
	return a.key
}

// Objects returns a of which only that counts by which objects are told apart: to the rest, clients see the same. It is nil if all objects
// are seen.
func (a *Allowed) Objects() *Allowed {
	if a == nil {
		return nil
	}
	return New(Allow{Kinds: a.kinds, Namespaces: a.namespaces, Sources: a.sources})
}

// Kind says whether there may be objects of a kind to see.
func (a *Allowed) Kind(kind resource.Kind) bool {
	return a == nil || a.kinds == nil || a.kinds.match(string(kind))
}

// Object says whether r may be seen. One that several sources were merged into needs all of them.
func (a *Allowed) Object(r *resource.Resource) bool {
	return a == nil || a.sees(r.Key(), r.Origin().Source)
}

// Namespace says whether there may be objects of a namespace to see.
func (a *Allowed) Namespace(name string) bool {
	return a == nil || a.namespaces == nil || a.namespaces.match(name)
}

func (a *Allowed) sees(key resource.Key, source string) bool {
	return a.Kind(key.Kind) && a.Namespace(key.Namespace) &&
		(a.sources == nil || !slices.ContainsFunc(strings.Split(source, ", "), func(one string) bool { return !a.sources.match(one) }))
}

// Type says whether one of Envoy's types may be seen.
func (a *Allowed) Type(typeURL string) bool {
	if a == nil || a.types == nil {
		return true
	}
	for name, url := range types() {
		if url == typeURL {
			return a.types.match(name)
		}
	}
	return a.types.match("") // just by *
}

// Service says whether a service may be asked.
func (a *Allowed) Service(name string) bool { return a == nil || a.services.match(name) }
