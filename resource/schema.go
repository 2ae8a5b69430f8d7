package resource

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	// The messages of every kind, registered for NewSpec.
	_ "istio.io/api/extensions/v1alpha1"
	_ "istio.io/api/mesh/v1alpha1"
	_ "istio.io/api/networking/v1alpha3"
	_ "istio.io/api/networking/v1beta1"
	_ "istio.io/api/security/v1beta1"
	_ "istio.io/api/telemetry/v1alpha1"
)

// Kind is the name of a kind as written in `kind:`, unique among those that tributary serves.
type Kind string

// The kinds that istiod subscribes to.
const (
	AuthorizationPolicy   Kind = "AuthorizationPolicy"
	DestinationRule       Kind = "DestinationRule"
	EnvoyFilter           Kind = "EnvoyFilter"
	Gateway               Kind = "Gateway"
	MeshConfig            Kind = "MeshConfig"
	PeerAuthentication    Kind = "PeerAuthentication"
	ProxyConfig           Kind = "ProxyConfig"
	RequestAuthentication Kind = "RequestAuthentication"
	ServiceEntry          Kind = "ServiceEntry"
	Sidecar               Kind = "Sidecar"
	Telemetry             Kind = "Telemetry"
	TrafficExtension      Kind = "TrafficExtension"
	VirtualService        Kind = "VirtualService"
	WasmPlugin            Kind = "WasmPlugin"
	WorkloadEntry         Kind = "WorkloadEntry"
	WorkloadGroup         Kind = "WorkloadGroup"
)

// SecurityKinds are the kinds of objects that deny: an object without a valid version must not count as missing.
var SecurityKinds = []Kind{AuthorizationPolicy, RequestAuthentication, PeerAuthentication}

// Schema describes a kind.
type Schema struct {
	Kind       Kind
	Group      string
	Versions   []string // API versions, the preferred one first; all mean the same content
	Plural     string
	ShortNames []string              // as in the CRDs of Istio, which give none to some kinds
	Message    protoreflect.FullName // the type of the spec; its package is not always Group/Version
	// Bare reports that the spec travels as it is, not in an mcp.Resource (MeshConfig). Such a kind is cluster-scoped.
	Bare bool
}

// NewSpec returns a new, empty spec.
func (s *Schema) NewSpec() proto.Message {
	messageType, err := protoregistry.GlobalTypes.FindMessageByName(s.Message)
	if err != nil {
		panic("resource: message of a built-in kind is not linked in: " + err.Error()) // cannot happen: imported above
	}
	return messageType.New().Interface()
}

// BodyTypeURL is the type URL of the encoded spec: "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry".
func (s *Schema) BodyTypeURL() string { return typePrefix + string(s.Message) }

// APIVersion is the preferred `apiVersion`: "networking.istio.io/v1".
func (s *Schema) APIVersion() string { return s.Group + "/" + s.Versions[0] }

// TypeURL is the preferred MCP type URL, "group/version/Kind".
func (s *Schema) TypeURL() string { return s.APIVersion() + "/" + string(s.Kind) }

// TypeURLs returns the type URLs of all versions, the preferred one first.
func (s *Schema) TypeURLs() []string {
	urls := make([]string, len(s.Versions))
	for i, version := range s.Versions {
		urls[i] = s.Group + "/" + version + "/" + string(s.Kind)
	}
	return urls
}

// schemas are all kinds, ordered by Kind.
var schemas = []*Schema{
	schema(AuthorizationPolicy, "security.istio.io", "v1 v1beta1", "authorizationpolicies", "istio.security.v1beta1",
		"ap"),
	schema(DestinationRule, "networking.istio.io", "v1 v1beta1 v1alpha3", "destinationrules", "istio.networking.v1alpha3",
		"dr"),
	schema(EnvoyFilter, "networking.istio.io", "v1alpha3", "envoyfilters", "istio.networking.v1alpha3"),
	schema(Gateway, "networking.istio.io", "v1 v1beta1 v1alpha3", "gateways", "istio.networking.v1alpha3", "gw"),
	{
		Kind: MeshConfig, Group: "core", Versions: []string{"v1alpha1"}, Plural: "meshconfigs",
		Message: "istio.mesh.v1alpha1.MeshConfig",
		Bare:    true,
	},
	schema(PeerAuthentication, "security.istio.io", "v1 v1beta1", "peerauthentications", "istio.security.v1beta1", "pa"),
	schema(ProxyConfig, "networking.istio.io", "v1beta1", "proxyconfigs", "istio.networking.v1beta1"),
	schema(RequestAuthentication, "security.istio.io", "v1 v1beta1", "requestauthentications", "istio.security.v1beta1",
		"ra"),
	schema(ServiceEntry, "networking.istio.io", "v1 v1beta1 v1alpha3", "serviceentries", "istio.networking.v1alpha3",
		"se"),
	schema(Sidecar, "networking.istio.io", "v1 v1beta1 v1alpha3", "sidecars", "istio.networking.v1alpha3"),
	schema(Telemetry, "telemetry.istio.io", "v1 v1alpha1", "telemetries", "istio.telemetry.v1alpha1", "telemetry"),
	schema(TrafficExtension, "extensions.istio.io", "v1alpha1", "trafficextensions", "istio.extensions.v1alpha1"),
	schema(VirtualService, "networking.istio.io", "v1 v1beta1 v1alpha3", "virtualservices", "istio.networking.v1alpha3",
		"vs"),
	schema(WasmPlugin, "extensions.istio.io", "v1alpha1", "wasmplugins", "istio.extensions.v1alpha1"),
	schema(WorkloadEntry, "networking.istio.io", "v1 v1beta1 v1alpha3", "workloadentries", "istio.networking.v1alpha3",
		"we"),
	schema(WorkloadGroup, "networking.istio.io", "v1 v1beta1 v1alpha3", "workloadgroups", "istio.networking.v1alpha3",
		"wg"),
}

// schema returns the schema of a kind. versions has spaces between the versions; messages is the package of the spec's
// message.
func schema(kind Kind, group, versions, plural, messages string, short ...string) *Schema {
	message := protoreflect.FullName(messages + "." + string(kind))
	return &Schema{
		Kind: kind, Group: group, Versions: strings.Fields(versions), Plural: plural, ShortNames: short,
		Message: message,
	}
}

var schemaByKind = func() map[Kind]*Schema {
	m := make(map[Kind]*Schema, len(schemas))
	for _, s := range schemas {
		m[s.Kind] = s
	}
	return m
}()

// Schemas returns the schemas of all kinds, ordered by kind.
func Schemas() []*Schema { return slices.Clone(schemas) }

// SchemaOf returns the schema of kind.
func SchemaOf(kind Kind) (*Schema, bool) {
	s, ok := schemaByKind[kind]
	return s, ok
}

// SchemaByAPIVersion returns the schema that `apiVersion:` and `kind:` name; every served version of a kind does.
func SchemaByAPIVersion(apiVersion, kind string) (*Schema, bool) {
	schema, ok := schemaByKind[Kind(kind)]
	if !ok {
		return nil, false
	}
	group, version, _ := strings.Cut(apiVersion, "/")
	if group != schema.Group || !slices.Contains(schema.Versions, version) {
		return nil, false
	}
	return schema, true
}

// SchemaByTypeURL returns the schema of an MCP type URL "group/version/Kind", whichever version alias it uses.
func SchemaByTypeURL(typeURL string) (*Schema, bool) {
	i := strings.LastIndexByte(typeURL, '/')
	if i < 0 {
		return nil, false
	}
	return SchemaByAPIVersion(typeURL[:i], typeURL[i+1:])
}

// KindNames returns the names for SchemaByName, in lower case.
func KindNames() (names []string) {
	for _, s := range schemas {
		names = append(append(names, strings.ToLower(string(s.Kind)), s.Plural), s.ShortNames...)
	}
	return names
}

// SchemaByName returns the schema that a person means by name: a kind, plural, singular or short name, in any case.
func SchemaByName(name string) (*Schema, bool) {
	name = strings.ToLower(name)
	for _, s := range schemas {
		if name == strings.ToLower(string(s.Kind)) || name == s.Plural || slices.Contains(s.ShortNames, name) {
			return s, true
		}
	}
	return nil, false
}
