package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	keys "tributary/internal/names"
	"tributary/resource"
)

// Clients choose their profiles, so the cost of profiles is bounded.
const (
	MaxScopes              = 1000 // in use at once, of profiles without Inbound
	MaxOfHost              = 100
	MaxCost                = 10_000_000 // of the scopes in use, in entries
	MaxHostCost            = 1_000_000
	MaxIdleCost            = 100_000 // of the cached scopes without clients, in entries
	ScopeCost              = 1000    // of one, without its entries
	MaxProfile             = 64 << 10
	MaxWorkloadViews       = 10_000 // in use at once, by Inbound
	MaxWorkloadViewsOfHost = 1000
	WorkloadViewCost       = 100 // of one, without its ports, in entries
	HostsPerStep           = 100 // translated before changes of the view get a turn
)

// A sidecar on demand gets listeners. It requests a virtual host and a cluster when a request or connection needs them,
// so that it holds only the resources that it uses.

// MetadataOnDemand is tributary's key of node metadata that enables discovery on demand by the value true.
const MetadataOnDemand = "ON_DEMAND"

// isTrue reports whether a value of node metadata is true, as a boolean or as a text.
func isTrue(v *structpb.Value) bool { return v.GetBoolValue() || v.GetStringValue() == "true" }

// Role is the sort of a client. It decides about the form of services for it.
type Role int

// The roles of clients.
const (
	Sidecar   Role = iota // an Envoy with listeners for direct or redirected connections
	Proxyless             // a gRPC client
	Ingress               // an Envoy that runs the servers of Gateways
)

// Profile has the attributes of a client that decide about its resources. Clients with equal profiles share them.
type Profile struct {
	Role         Role
	Namespace    string
	Captures     bool   // connections are redirected to a sidecar, so that listeners can have the addresses of services
	Transparent  bool   // redirection keeps the original addresses
	Resolves     bool   // a sidecar answers DNS queries of its workload
	Labels       string // of the client's workload, as far as objects select by them; see LabelMap
	LabelsMatter bool   // it has labels, and objects select by labels

	Locality    Locality
	Credentials string // the folder that credentials are in
	OnDemand    bool   // a sidecar requests the resources that it uses
	Large       bool   // regular expressions may be as large as in Istio's proxies
	Identity    string // the source of the client's certificate and key, or empty
	Inbound     string // the ports of services that a sidecar's workload serves; see InboundText
	Version     string // of Istio, by the client, as far as objects select by it
	Metadata    string // further texts of the node, as far as objects select by them; in the form of Labels
}

// size is the number of bytes in the profile, without the metadata: of these it keeps only those that objects name.
func (p *Profile) size() int {
	return len(p.Version) + len(p.Namespace) + len(p.Labels) + len(p.Credentials) + len(p.Identity) +
		len(p.Locality.Region) + len(p.Locality.Zone) + len(p.Locality.SubZone)
}

// Check refuses a profile that is too large, and an invalid namespace.
func (p *Profile) Check() error {
	if size := p.size(); size > MaxProfile {
		return status.Errorf(codes.InvalidArgument, "node attributes have %d bytes: the limit is %d", size, MaxProfile)
	}
	if err := resource.CheckNamespace(p.Namespace); err != nil {
		return status.Errorf(codes.InvalidArgument, "namespace of the node: %v", err)
	}
	return nil
}

// String names the clients of the profile for people.
func (p Profile) String() string {
	kind := "sidecars in "
	switch p.Role {
	case Proxyless:
		kind = "gRPC clients in "
	case Ingress:
		kind = "gateways in "
	}
	if p.Captures {
		return kind + p.Namespace + " with redirection"
	}
	return kind + p.Namespace
}

// LabelText encodes labels. The text is equal only for equal labels.
func LabelText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name, labels[name])
	}
	return keys.Join(parts...)
}

// LabelMap returns the labels.
func (p *Profile) LabelMap() map[string]string { return LabelMapOf(p.Labels) }

// LabelMapOf decodes a text of LabelText.
func LabelMapOf(text string) map[string]string {
	labels := make(map[string]string)
	for pair := range slices.Chunk(keys.Split(text), 2) {
		labels[pair[0]] = pair[1]
	}
	return labels
}

// The keys of node metadata that Istio's agents send.
const (
	metadataGenerator    = "GENERATOR"
	MetadataNamespace    = "NAMESPACE"
	MetadataInterception = "INTERCEPTION_MODE"
	MetadataLabels       = "LABELS"
	MetadataDNS          = "DNS_CAPTURE"
	MetadataIstio        = "ISTIO_VERSION"
	metadataAddresses    = "INSTANCE_IPS"
	MetadataCredentials  = "CREDENTIALS"          // of tributary: a folder
	MetadataProgram      = "RE2_MAX_PROGRAM_SIZE" // of tributary: as in the runtime, re2.max_program_size.error_level
)

// defaultNamespace is the namespace of clients that name none.
const defaultNamespace = "default"

// ProfileOf reads the node of a client, with all of its labels. Istio's agent writes an id of the form
// type~address~name.namespace~domain. A plain bootstrap may leave all fields out.
func ProfileOf(node *corev3.Node) Profile {
	fields := node.GetMetadata().GetFields()
	profile := Profile{Namespace: fields[MetadataNamespace].GetStringValue()}
	if parts := strings.Split(node.GetId(), "~"); len(parts) == 4 && profile.Namespace == "" {
		if i := strings.LastIndexByte(parts[2], '.'); i >= 0 {
			profile.Namespace = parts[2][i+1:]
		}
	}
	if profile.Namespace == "" {
		profile.Namespace = defaultNamespace
	}
	if strings.HasPrefix(node.GetId(), "router~") {
		profile.Role = Ingress
	}
	if fields[metadataGenerator].GetStringValue() == "grpc" ||
		strings.HasPrefix(strings.ToLower(node.GetUserAgentName()), "grpc") {
		profile.Role = Proxyless
	}
	if profile.Role != Proxyless {
		profile.Identity = identityOf(fields)
		profile.Credentials = cmp.Or(strings.TrimRight(fields[MetadataCredentials].GetStringValue(), "/"), DefaultCredentials)
	}
	profile.Large = profile.Role == Proxyless || fields[MetadataIstio].GetStringValue() != "" ||
		takesPrograms(fields[MetadataProgram].GetStringValue())
	profile.OnDemand = profile.Role == Sidecar && isTrue(fields[MetadataOnDemand])
	profile.Resolves = profile.Role == Sidecar && isTrue(fields[MetadataDNS])
	switch fields[MetadataInterception].GetStringValue() {
	case "REDIRECT", "TPROXY":
		profile.Captures = profile.Role == Sidecar
		profile.Transparent = profile.Captures && fields[MetadataInterception].GetStringValue() == "TPROXY"
	}
	labels := fields[MetadataLabels].GetStructValue().GetFields()
	labelTexts := make(map[string]string, len(labels))
	for name, value := range labels {
		labelTexts[name] = value.GetStringValue()
	}
	profile.Labels = LabelText(labelTexts)
	profile.LabelsMatter = len(labelTexts) > 0
	texts := make(map[string]string)
	for name, value := range fields {
		if text, ok := value.GetKind().(*structpb.Value_StringValue); ok {
			texts[name] = text.StringValue
		}
	}
	profile.Version = texts[MetadataIstio]
	profile.Metadata = LabelText(texts)
	profile.Locality = Locality{
		node.GetLocality().GetRegion(), node.GetLocality().GetZone(), node.GetLocality().GetSubZone(),
	}
	if profile.Locality == (Locality{}) {
		profile.Locality = LocalityOf(strings.ReplaceAll(labels[localityLabel].GetStringValue(), ".", "/"))
	}
	return profile
}
