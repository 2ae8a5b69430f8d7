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
	Services   []string // of this server, by the names of Services
}

// The services of this server that permissions name. They are no services of a mesh.
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

// Rights are permissions with sorted lists, and are never modified. Nil allows everything.
type Rights struct {
	permissions Permissions
	key         string
}

// NewRights returns the rights of permissions. It is nil if no list has entries.
func NewRights(permissions Permissions) *Rights {
	p := &permissions
	limited := false
	for _, list := range []*[]string{&p.Kinds, &p.Namespaces, &p.Sources, &p.Types, &p.Services} {
		*list = slices.Compact(slices.Sorted(slices.Values(*list)))
		limited = limited || len(*list) > 0
	}
	if !limited {
		return nil
	}
	return &Rights{permissions, fmt.Sprintf("%q", [][]string{p.Kinds, p.Namespaces, p.Sources, p.Types, p.Services})}
}

// Key returns a key that differs for different rights. It is empty for nil.
func (rights *Rights) Key() string {
	if rights == nil {
		return ""
	}
	return rights.key
}

// get returns the permissions; nil rights have no limits.
func (rights *Rights) get() Permissions {
	if rights == nil {
		return Permissions{}
	}
	return rights.permissions
}

// Objects returns the part of the rights that concerns objects. It is nil if all objects may be read.
func (rights *Rights) Objects() *Rights {
	p := rights.get()
	return NewRights(Permissions{Kinds: p.Kinds, Namespaces: p.Namespaces, Sources: p.Sources})
}

// AllowsObject reports whether an object may be read. An object merged from several sources needs each of them.
func (rights *Rights) AllowsObject(r *resource.Resource) bool {
	return rights == nil || rights.allowsKey(r.Key(), r.Origin().Source)
}

func (rights *Rights) allowsKey(key resource.Key, source string) bool {
	p := rights.get()
	if !admits(p.Kinds, string(key.Kind)) || !admits(p.Namespaces, key.Namespace) {
		return false
	}
	return len(p.Sources) == 0 || compare(p.Sources, strings.Split(source, ", "), matches, allValues)
}

// AllowsNamespace reports whether objects of a namespace may be read.
func (rights *Rights) AllowsNamespace(name string) bool { return admits(rights.get().Namespaces, name) }

// AllowsType reports whether one of Envoy's types may be read. A type without a short name needs the pattern *.
func (rights *Rights) AllowsType(typeURL string) bool {
	name := ""
	for _, envoyType := range envoyTypes {
		if envoyType[1] == typeURL {
			name = envoyType[0]
		}
	}
	return admits(rights.get().Types, name)
}

// AllowsService reports whether a service may be used. Rights without a list of services allow none.
func (rights *Rights) AllowsService(name string) bool {
	return rights == nil || len(rights.permissions.Services) > 0 && admits(rights.permissions.Services, name)
}

func (rights *Rights) checkService(client *identity.Identity, name string) error {
	if rights.AllowsService(name) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "no access rule allows %s to %s", name, client)
}
