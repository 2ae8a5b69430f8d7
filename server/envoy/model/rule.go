package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tributary/resource"
)

// Rule is an object that says something of hosts: a DestinationRule or a VirtualService.
type Rule[T any] struct {
	Key      resource.Key
	Created  time.Time
	Version  string
	Spec     T
	Hosts    []string // whole names, in lower case; they may be wildcards
	ExportTo []string
	LeadsTo  []string // other hosts, on whose services it depends
	Derived  Derived  // of its routes
	Places   []Place  // of its HTTP routes, if they are not all its own
	Uniform  bool     // its routes are the same for all clients
}

// HttpRoute is where one of the HTTP routes stands.
func (r *Rule[T]) HttpRoute(i int) Place {
	if r.Places != nil {
		return r.Places[i]
	}
	return Place{r.Key, fmt.Sprintf("spec.http[%d]", i)}
}

// Derived says of what objects of Kubernetes a VirtualService was made, whose routes mean what they mean there; see
// resource.RouteSemantics.
type Derived string

// The values of Derived that change the meaning of routes.
const (
	DerivedIngress Derived = "ingress"
	DerivedGateway Derived = "gateway" // objects of Gateway API
)

// BySegment says whether prefixes match whole segments of paths.
func (d Derived) BySegment() bool { return d == DerivedIngress || d == DerivedGateway }

// WholeName completes the name of a host that the rule has.
func (r *Rule[T]) WholeName(host string) string {
	if r.Derived == DerivedGateway {
		return strings.ToLower(host)
	}
	return WholeName(host, r.Key.Namespace)
}

// Precedence is that of the rule to the clients in a namespace. Routes of Gateway API come before others of the same audience in their own
// namespace, whose clients they are for.
func (r *Rule[T]) Precedence(client string) Precedence {
	p := PrecedenceOf(r.Key, r.Created, r.ExportTo, client)
	if r.Derived == DerivedGateway && r.Key.Namespace == client {
		p.rank = -1
	}
	return p
}

// OlderRule orders rules by age, and equally old ones by name.
func OlderRule[T any](a, b *Rule[T]) int {
	return cmp.Or(a.Created.Compare(b.Created), OlderName(a.Key, b.Key))
}

// VisibleTo says whether something of a namespace that is exported so is visible to another one. What says nothing is exported to all.
func VisibleTo(exportTo []string, of, to string) bool {
	return len(exportTo) == 0 || slices.ContainsFunc(exportTo, func(e string) bool { return e == "*" || e == to || e == "." && of == to })
}

// IsWildcard says whether a host stands for others.
func IsWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// Matches says whether a host, or all that it stands for if it is a wildcard itself, is one of those that pattern stands for.
func Matches(pattern, host string) bool {
	if !IsWildcard(pattern) {
		return pattern == host
	}
	return strings.HasSuffix(strings.TrimPrefix(host, "*"), pattern[1:])
}

// WholeName completes a host without dots by the namespace of the object that names it, as istiod does with what it reads over MCP.
func WholeName(host, namespace string) string {
	host = strings.ToLower(host)
	if strings.Contains(host, ".") || IsWildcard(host) || namespace == "" {
		return host
	}
	return host + "." + namespace
}
