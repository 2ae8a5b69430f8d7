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

// Schema describes a kind.
type Schema struct {
	Kind       Kind
	Group      string
	Versions   []string // API versions, the preferred one first; all mean the same content
	Plural     string
	ShortNames []string              // as in the CRDs of Istio, which give none to some kinds
	Message    protoreflect.FullName // the type of the spec; its package is not always Group/Version
	// Bare says that the spec travels as it is, not in an mcp.Resource (MeshConfig). Such a kind is cluster-scoped.
	Bare bool
}

// NewSpec returns a new, empty spec.
func (s *Schema) NewSpec() proto.Message {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(s.Message)
	if err != nil {
		panic("resource: message of a built-in kind is not linked in: " + err.Error()) // cannot happen: imported above
	}
	return mt.New().Interface()
}

// BodyTypeURL is the type URL of the encoded spec: "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry".
func (s *Schema) BodyTypeURL() string { return typePrefix + string(s.Message) }

// APIVersion is the preferred `apiVersion`: "networking.istio.io/v1".
func (s *Schema) APIVersion() string { return s.Group + "/" + s.Versions[0] }

// TypeURL is the preferred MCP type URL, "group/version/Kind".
func (s *Schema) TypeURL() string { return s.APIVersion() + "/" + string(s.Kind) }

// schemas are all kinds, ordered by Kind.
var schemas = []*Schema{
	{
		Kind: AuthorizationPolicy, Group: "security.istio.io", Versions: []string{"v1", "v1beta1"}, Plural: "authorizationpolicies",
		ShortNames: []string{"ap"}, Message: "istio.security.v1beta1.AuthorizationPolicy",
	},
	{
		Kind: DestinationRule, Group: "networking.istio.io", Versions: []string{"v1", "v1beta1", "v1alpha3"}, Plural: "destinationrules",
		ShortNames: []string{"dr"}, Message: "istio.networking.v1alpha3.DestinationRule",
	},
	{
		Kind: EnvoyFilter, Group: "networking.istio.io", Versions: []string{"v1alpha3"}, Plural: "envoyfilters",
		Message: "istio.networking.v1alpha3.EnvoyFilter",
	},
	{
		Kind: Gateway, Group: "networking.istio.io", Versions: []string{"v1", "v1beta1", "v1alpha3"}, Plural: "gateways",
		ShortNames: []string{"gw"}, Message: "istio.networking.v1alpha3.Gateway",
	},
	{
		Kind: MeshConfig, Group: "core", Versions: []string{"v1alpha1"}, Plural: "meshconfigs", Message: "istio.mesh.v1alpha1.MeshConfig",
		Bare: true,
	},
	{
		Kind: PeerAuthentication, Group: "security.istio.io", Versions: []string{"v1", "v1beta1"}, Plural: "peerauthentications",
		ShortNames: []string{"pa"}, Message: "istio.security.v1beta1.PeerAuthentication",
	},
	{
		Kind: ProxyConfig, Group: "networking.istio.io", Versions: []string{"v1beta1"}, Plural: "proxyconfigs",
		Message: "istio.networking.v1beta1.ProxyConfig",
	},
	{
		Kind: RequestAuthentication, Group: "security.istio.io", Versions: []string{"v1", "v1beta1"}, Plural: "requestauthentications",
		ShortNames: []string{"ra"}, Message: "istio.security.v1beta1.RequestAuthentication",
	},
	{
		Kind: ServiceEntry, Group: "networking.istio.io", Versions: []string{"v1", "v1beta1", "v1alpha3"}, Plural: "serviceentries",
		ShortNames: []string{"se"}, Message: "istio.networking.v1alpha3.ServiceEntry",
	},
	{
		Kind: Sidecar, Group: "networking.istio.io", Versions: []string{"v1", "v1beta1", "v1alpha3"}, Plural: "sidecars",
		Message: "istio.networking.v1alpha3.Sidecar",
	},
	{
		Kind: Telemetry, Group: "telemetry.istio.io", Versions: []string{"v1", "v1alpha1"}, Plural: "telemetries",
		ShortNames: []string{"telemetry"}, Message: "istio.telemetry.v1alpha1.Telemetry",
	},
	{
		Kind: TrafficExtension, Group: "extensions.istio.io", Versions: []string{"v1alpha1"}, Plural: "trafficextensions",
		Message: "istio.extensions.v1alpha1.TrafficExtension",
	},
	{
		Kind: VirtualService, Group: "networking.istio.io", Versions: []string{"v1", "v1beta1", "v1alpha3"}, Plural: "virtualservices",
		ShortNames: []string{"vs"}, Message: "istio.networking.v1alpha3.VirtualService",
	},
	{
		Kind: WasmPlugin, Group: "extensions.istio.io", Versions: []string{"v1alpha1"}, Plural: "wasmplugins",
		Message: "istio.extensions.v1alpha1.WasmPlugin",
	},
	{
		Kind: WorkloadEntry, Group: "networking.istio.io", Versions: []string{"v1", "v1beta1", "v1alpha3"}, Plural: "workloadentries",
		ShortNames: []string{"we"}, Message: "istio.networking.v1alpha3.WorkloadEntry",
	},
	{
		Kind: WorkloadGroup, Group: "networking.istio.io", Versions: []string{"v1", "v1beta1", "v1alpha3"}, Plural: "workloadgroups",
		ShortNames: []string{"wg"}, Message: "istio.networking.v1alpha3.WorkloadGroup",
	},
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
	s, ok := schemaByKind[Kind(kind)]
	if !ok {
		return nil, false
	}
	group, version, _ := strings.Cut(apiVersion, "/")
	if group != s.Group || !slices.Contains(s.Versions, version) {
		return nil, false
	}
	return s, true
}

// SchemaByTypeURL returns the schema of an MCP type URL "group/version/Kind", whichever version alias it uses.
func SchemaByTypeURL(typeURL string) (*Schema, bool) {
	i := strings.LastIndexByte(typeURL, '/')
	if i < 0 {
		return nil, false
	}
	return SchemaByAPIVersion(typeURL[:i], typeURL[i+1:])
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
