// Package access decides which objects, Envoy types and services a client may read. The first access rule of the
// configuration that matches the client decides. For the client, all other objects do not exist.
package access

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/resource"
	"tributary/server/identity"
	"tributary/server/xds"
)

// Permissions are the rights of a rule. An empty list has no limit, except that services must be listed if any list has
// entries.
type Permissions struct {
	Kinds      []string // of objects
	Namespaces []string // of objects; the empty string stands for objects without a namespace
	Sources    []string // of objects, by name
	Types      []string // of Envoy, by the short names of Types
	Services   []string // of gRPC and the admin server, by the names of Services
}

// The services that permissions name.
const (
	Reflection = "reflection" // gRPC reflection
	Channelz   = "channelz"   // gRPC channelz: all connections
	CSDS       = "csds"       // all clients and their resources
	Debug      = "debug"      // istioctl's debug types over xDS: more about all clients
	Admin      = "admin"      // changes by the admin server
)

// Services returns the names of the services.
func Services() []string { return []string{Reflection, Channelz, CSDS, Debug, Admin} }

// envoyTypes are the short names of Envoy's types, each followed by its type URL.
var envoyTypes = [][2]string{
	{"clusters", xds.ClusterURL},
	{"endpoints", xds.EndpointURL},
	{"listeners", xds.ListenerURL},
	{"routes", xds.RouteURL},
	{"virtualHosts", xds.VHostURL},
	{"secrets", xds.SecretURL},
}

// Types returns the short names of Envoy's types.
func Types() (names []string) {
	for _, envoyType := range envoyTypes {
		names = append(names, envoyType[0])
	}
	return names
}

// Rights are normalized permissions, which are not modified. Nil allows everything.
type Rights struct {
	permissions Permissions
	key         string
}

// NewRights normalizes permissions. It returns nil if they have no limit.
func NewRights(permissions Permissions) *Rights {
	limited := false
	for _, list := range []*[]string{
		&permissions.Kinds, &permissions.Namespaces, &permissions.Sources, &permissions.Types,
		&permissions.Services,
	} {
		*list = slices.Compact(slices.Sorted(slices.Values(*list)))
		limited = limited || len(*list) > 0
	}
	if !limited {
		return nil
	}
	return &Rights{permissions, fmt.Sprintf("%q",
		[][]string{permissions.Kinds, permissions.Namespaces, permissions.Sources, permissions.Types, permissions.Services})}
}

// Key returns a key that differs for different rights. It is empty for nil.
func (a *Rights) Key() string {
	if a == nil {
		return ""
	}
	return a.key
}

// get returns the permissions; nil rights have no limits.
func (a *Rights) get() Permissions {
	if a == nil {
		return Permissions{}
	}
	return a.permissions
}

// Objects returns the rights without types and services. It is nil if all objects may be read.
func (a *Rights) Objects() *Rights {
	p := a.get()
	return NewRights(Permissions{Kinds: p.Kinds, Namespaces: p.Namespaces, Sources: p.Sources})
}

// AllowsObject reports whether an object may be read. An object merged from several sources needs each of them.
func (a *Rights) AllowsObject(r *resource.Resource) bool {
	return a == nil || a.allowsKey(r.Key(), r.Origin().Source)
}

func (a *Rights) allowsKey(key resource.Key, source string) bool {
	p := a.get()
	return admits(p.Kinds, string(key.Kind)) && admits(p.Namespaces, key.Namespace) &&
		(len(p.Sources) == 0 || compare(p.Sources, strings.Split(source, ", "), matches, allValues))
}

// AllowsNamespace reports whether objects of a namespace may be read.
func (a *Rights) AllowsNamespace(name string) bool { return admits(a.get().Namespaces, name) }

// AllowsType reports whether one of Envoy's types may be read. A type without a short name needs the pattern *.
func (a *Rights) AllowsType(typeURL string) bool {
	name := ""
	for _, envoyType := range envoyTypes {
		if envoyType[1] == typeURL {
			name = envoyType[0]
		}
	}
	return admits(a.get().Types, name)
}

// AllowsService reports whether a service may be used.
func (a *Rights) AllowsService(name string) bool {
	return a == nil || len(a.permissions.Services) > 0 && admits(a.permissions.Services, name)
}

func (a *Rights) checkService(client *identity.Identity, name string) error {
	if a.AllowsService(name) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "no access rule allows %s to %s", name, client)
}
