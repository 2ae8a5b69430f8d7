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
	Places   []Place  // of its HTTP routes, if they are not all its own
}

// HttpRoute is where one of the HTTP routes stands.
func (r *Rule[T]) HttpRoute(i int) Place {
	if r.Places != nil {
		return r.Places[i]
	}
	return Place{r.Key, fmt.Sprintf("spec.http[%d]", i)}
}

// Precedence is that of the rule to the clients in a namespace.
func (r *Rule[T]) Precedence(client string) Precedence {
	return PrecedenceOf(r.Key, r.Created, r.ExportTo, client)
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
