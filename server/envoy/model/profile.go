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

// Profiles are made up by clients, so what they cost is bounded.
const (
	MaxScopes         = 1000 // in use at once, of profiles without Inbound
	MaxOfHost         = 100
	MaxCost           = 10_000_000 // of the scopes in use, in entries
	MaxHostCost       = 1_000_000
	MaxIdleCost       = 100_000 // of the scopes without clients that are kept, in entries
	ScopeCost         = 1000    // of one, besides its entries
	MaxProfile        = 64 << 10
	MaxVariants       = 10_000 // in use at once, by Inbound of profiles that are the same else
	MaxVariantsOfHost = 1000
	VariantCost       = 100 // of one, besides its ports, in entries
	HostsAtATime      = 100 // are translated before a commit of the view may come in between
)

// A sidecar on demand gets listeners, and asks for the virtual host of a request that it cannot route yet, and for the cluster to which it,
// or a connection, is to go. So it has what it uses, and not what exists.

// MetadataOnDemand is a key of node metadata, ours: true is a wish for that.
const MetadataOnDemand = "ON_DEMAND"

// isTrue says whether a key of node metadata is true, as a text or not.
func isTrue(v *structpb.Value) bool { return v.GetBoolValue() || v.GetStringValue() == "true" }

// Role is what a client is, which decides the form in which services are served to it.
type Role int

// The roles of clients.
const (
	Sidecar   Role = iota // an Envoy whose listeners are addressed directly, or by redirected connections
	Proxyless             // a gRPC client
	Ingress               // an Envoy that runs the servers of Gateways
)

// Profile is all that decides what is served to a client. Clients of one profile share everything.
type Profile struct {
	Role        Role
	Namespace   string
	Captures    bool   // connections are redirected to a sidecar, so that listeners can have the addresses of services
	Transparent bool   // redirection keeps the original addresses
	Resolves    bool   // a sidecar answers DNS queries of its workload
	Labels      string // of the client's workload, as far as objects look at them; see labelMap
	Labelled    bool   // it has some, and objects look at labels

	Locality    Locality
	Credentials string // the folder that credentials are in
	OnDemand    bool   // a sidecar asks for what it uses
	Large       bool   // regular expressions may be as large as Istio's proxies take them
	Identity    string // where the client's certificate and key come from; empty if it has none
	Inbound     string // the ports of services that a sidecar's workload serves; see InboundText
	Version     string // of Istio, as the client says, as far as objects look at it
	Metadata    string // what else the client says of itself in texts, as far as objects look at it; in the form of Labels
}

// size is how many bytes the profile has, without the metadata, of which only what objects name is kept.
func (p *Profile) size() int {
	return len(p.Version) + len(p.Namespace) + len(p.Labels) + len(p.Credentials) + len(p.Identity) +
		len(p.Locality.Region) + len(p.Locality.Zone) + len(p.Locality.SubZone)
}

// Check refuses a profile that is too large, and a namespace that no client can be in.
func (p *Profile) Check() error {
	if size := p.size(); size > MaxProfile {
		return status.Errorf(codes.InvalidArgument, "node with %d bytes of what decides what it is told: the limit is %d", size, MaxProfile)
	}
	if err := resource.CheckNamespace(p.Namespace); err != nil {
		return status.Errorf(codes.InvalidArgument, "namespace of the node: %v", err)
	}
	return nil
}

// String says what clients these are.
func (p Profile) String() string {
	what := "sidecars in "
	switch p.Role {
	case Proxyless:
		what = "gRPC clients in "
	case Ingress:
		what = "gateways in "
	}
	if p.Captures {
		return what + p.Namespace + " with redirection"
	}
	return what + p.Namespace
}

// LabelText is labels as a text, the same for equal ones and for no others.
func LabelText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name, labels[name])
	}
	return keys.Join(parts...)
}

// LabelMap returns the labels.
func (p *Profile) LabelMap() map[string]string { return LabelMapOf(p.Labels) }

// LabelMapOf returns the labels that LabelText made a text of.
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
	MetadataCredentials  = "CREDENTIALS"          // ours: a folder
	MetadataProgram      = "RE2_MAX_PROGRAM_SIZE" // ours: as in the runtime, re2.max_program_size.error_level
)

// defaultNamespace is that of clients that name none.
const defaultNamespace = "default"

// ProfileOf reads the node of a client, with all of its labels: one that Istio's agent writes, with an id of the form
// type~address~name.namespace~domain, or that of a plain bootstrap, which need not say anything.
func ProfileOf(node *corev3.Node) Profile {
	fields := node.GetMetadata().GetFields()
	p := Profile{Namespace: fields[MetadataNamespace].GetStringValue()}
	if parts := strings.Split(node.GetId(), "~"); len(parts) == 4 && p.Namespace == "" {
		if i := strings.LastIndexByte(parts[2], '.'); i >= 0 {
			p.Namespace = parts[2][i+1:]
		}
	}
	if p.Namespace == "" {
		p.Namespace = defaultNamespace
	}
	if strings.HasPrefix(node.GetId(), "router~") {
		p.Role = Ingress
	}
	if fields[metadataGenerator].GetStringValue() == "grpc" || strings.HasPrefix(strings.ToLower(node.GetUserAgentName()), "grpc") {
		p.Role = Proxyless
	}
	if p.Role != Proxyless {
		p.Identity = identityOf(fields)
		p.Credentials = cmp.Or(strings.TrimRight(fields[MetadataCredentials].GetStringValue(), "/"), DefaultCredentials)
	}
	p.Large = p.Role == Proxyless || fields[MetadataIstio].GetStringValue() != "" || takesPrograms(fields[MetadataProgram].GetStringValue())
	p.OnDemand = p.Role == Sidecar && isTrue(fields[MetadataOnDemand])
	p.Resolves = p.Role == Sidecar && isTrue(fields[MetadataDNS])
	switch fields[MetadataInterception].GetStringValue() {
	case "REDIRECT", "TPROXY":
		p.Captures = p.Role == Sidecar
		p.Transparent = p.Captures && fields[MetadataInterception].GetStringValue() == "TPROXY"
	}
	labels := fields[MetadataLabels].GetStructValue().GetFields()
	said := make(map[string]string, len(labels))
	for name, value := range labels {
		said[name] = value.GetStringValue()
	}
	p.Labels, p.Labelled = LabelText(said), len(said) > 0
	texts := make(map[string]string)
	for name, value := range fields {
		if text, ok := value.GetKind().(*structpb.Value_StringValue); ok {
			texts[name] = text.StringValue
		}
	}
	p.Version, p.Metadata = texts[MetadataIstio], LabelText(texts)
	p.Locality = Locality{node.GetLocality().GetRegion(), node.GetLocality().GetZone(), node.GetLocality().GetSubZone()}
	if p.Locality == (Locality{}) {
		p.Locality = LocalityOf(strings.ReplaceAll(labels[localityLabel].GetStringValue(), ".", "/"))
	}
	return p
}
