package model

import (
	"cmp"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Rule is an object about hosts: a DestinationRule or a VirtualService.
type Rule[T any] struct {
	Key       resource.Key
	Created   time.Time
	Version   string
	Spec      T
	Hosts     []string // whole names, in lower case; they may be wildcards
	ExportTo  []string
	DependsOn []string // other hosts that it depends on
	Derived   Derived  // of its routes
	Places    []Place  // of its HTTP routes, if some come from delegates
	Uniform   bool     // its routes are the same for all clients
}

// DestinationRule is a DestinationRule.
type DestinationRule = Rule[*networking.DestinationRule]

// VirtualService is a VirtualService.
type VirtualService = Rule[*networking.VirtualService]

// HttpRoute is the place of an HTTP route.
func (r *Rule[T]) HttpRoute(i int) Place {
	if r.Places != nil {
		return r.Places[i]
	}
	return PlaceIn(r.Key, "spec.http[%d]", i)
}

// Derived names the kind of Kubernetes objects that a VirtualService was derived from. Its routes have the semantics of
// that kind; see resource.RouteSemantics.
type Derived string

// The values of Derived that change the meaning of routes.
const (
	DerivedIngress Derived = "ingress"
	DerivedGateway Derived = "gateway" // objects of Gateway API
)

// BySegment reports whether prefixes match whole segments of paths.
func (d Derived) BySegment() bool { return d == DerivedIngress || d == DerivedGateway }

// WholeName completes the name of a host in the rule.
func (r *Rule[T]) WholeName(host string) string {
	if r.Derived == DerivedGateway {
		return strings.ToLower(host)
	}
	return WholeName(host, r.Key.Namespace)
}

// WholeGateways completes the names of gateways in the rule. It omits MeshGateway.
func (r *Rule[T]) WholeGateways(names []string) (qualified []string) {
	for _, name := range names {
		if name != MeshGateway {
			qualified = append(qualified, r.WholeGateway(name))
		}
	}
	return qualified
}

// WholeGateway returns the namespace/name of a gateway that the rule names. Routes of the Gateway API name it so.
func (r *Rule[T]) WholeGateway(name string) string {
	if r.Derived == DerivedGateway {
		return name
	}
	return WholeGateway(name, r.Key.Namespace)
}

// WholeGateway returns the namespace/name of a gateway that an object in a namespace names. Istio knows four forms:
// namespace/name, ./name, name, and name.namespace with any domain after it.
func WholeGateway(name, namespace string) string {
	if owner, short, isQualified := strings.Cut(name, "/"); isQualified {
		if owner == "." {
			return namespace + "/" + short
		}
		return name
	}
	short, domain, isHost := strings.Cut(name, ".")
	if isHost {
		namespace, _, _ = strings.Cut(domain, ".")
	}
	return namespace + "/" + short
}

// Precedence is the precedence of the rule for the clients in a namespace. Routes of the Gateway API come before other
// routes of the same audience in their namespace, because they are meant for its clients.
func (r *Rule[T]) Precedence(client string) Precedence {
	precedence := PrecedenceOf(r.Key, r.Created, r.ExportTo, client)
	if r.Derived == DerivedGateway && r.Key.Namespace == client {
		precedence.rank = -1
	}
	return precedence
}

// OlderRule orders rules by age, and those of the same age by name.
func OlderRule[T any](a, b *Rule[T]) int {
	return cmp.Or(a.Created.Compare(b.Created), OlderName(a.Key, b.Key))
}

// VisibleTo reports whether an object of the owner's namespace is visible to a client's namespace. An empty list
// exports it to all.
func VisibleTo(exportTo []string, owner, client string) bool {
	return len(exportTo) == 0 || slices.ContainsFunc(exportTo,
		func(e string) bool { return e == "*" || e == client || e == "." && owner == client })
}

// IsWildcard reports whether a host is a pattern.
func IsWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// Matches reports whether a pattern covers a host, or, if the host is a wildcard itself, all hosts that it covers.
func Matches(pattern, host string) bool {
	if !IsWildcard(pattern) {
		return pattern == host
	}
	return strings.HasSuffix(strings.TrimPrefix(host, "*"), pattern[1:])
}

// WholeName completes a host without dots by the namespace of the object that names it, as istiod does with objects
// from MCP.
func WholeName(host, namespace string) string {
	host = strings.ToLower(host)
	if strings.Contains(host, ".") || IsWildcard(host) || namespace == "" {
		return host
	}
	return host + "." + namespace
}
