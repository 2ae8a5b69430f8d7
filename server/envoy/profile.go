package envoy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	keys "tributary/internal/names"
	"tributary/resource"
)

// role is what a client is, which decides in which form it is told of services.
type role int

const (
	sidecar   role = iota // an Envoy whose listeners are addressed directly, or by redirected connections
	proxyless             // a gRPC client
	ingress               // an Envoy that runs the servers of Gateways
)

// profile is all that decides what a client is told. Clients of one profile share everything.
type profile struct {
	role      role
	namespace string
	captures  bool   // connections are redirected to a sidecar, so that listeners can have the addresses of services
	intact    bool   // they come with the address that they were meant for
	labels    string // of the client's workload, as far as objects look at them; see labelMap
	labelled  bool   // it has some, and objects look at labels

	place       locality
	credentials string // the folder that credentials are in
	onDemand    bool   // a sidecar asks for what it uses
	large       bool   // regular expressions may be as large as Istio's proxies take them
}

// size is how many bytes the profile has.
func (p *profile) size() int {
	return len(p.namespace) + len(p.labels) + len(p.credentials) + len(p.place.region) + len(p.place.zone) + len(p.place.subZone)
}

// check refuses a profile that is too large, and a namespace that no client can be in.
func (p *profile) check() error {
	if size := p.size(); size > maxProfile {
		return status.Errorf(codes.InvalidArgument, "node with %d bytes of what decides what it is told: the limit is %d", size, maxProfile)
	}
	if err := resource.CheckNamespace(p.namespace); err != nil {
		return status.Errorf(codes.InvalidArgument, "namespace of the node: %v", err)
	}
	return nil
}

// String says what clients these are.
func (p profile) String() string {
	what := "sidecars in "
	switch p.role {
	case proxyless:
		what = "gRPC clients in "
	case ingress:
		what = "gateways in "
	}
	if p.captures {
		return what + p.namespace + " with redirection"
	}
	return what + p.namespace
}

// labelText is labels as a text, the same for equal ones and for no others.
func labelText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name, labels[name])
	}
	return keys.Join(parts...)
}

// labelMap returns the labels.
func (p *profile) labelMap() map[string]string {
	labels := make(map[string]string)
	for pair := range slices.Chunk(keys.Split(p.labels), 2) {
		labels[pair[0]] = pair[1]
	}
	return labels
}

// The keys of node metadata that Istio's agents send.
const (
	metadataGenerator    = "GENERATOR"
	metadataNamespace    = "NAMESPACE"
	metadataInterception = "INTERCEPTION_MODE"
	metadataLabels       = "LABELS"
	metadataIstio        = "ISTIO_VERSION"
	metadataCredentials  = "CREDENTIALS"          // ours: a folder
	metadataProgram      = "RE2_MAX_PROGRAM_SIZE" // ours: as in the runtime, re2.max_program_size.error_level
)

// defaultNamespace is that of clients that name none.
const defaultNamespace = "default"

// profileOf reads the node of a client, with all of its labels: one that Istio's agent writes, with an id of the form type~address~name.namespace~domain,
// or that of a plain bootstrap, which need not say anything.
func profileOf(node *corev3.Node) profile {
	fields := node.GetMetadata().GetFields()
	p := profile{namespace: fields[metadataNamespace].GetStringValue()}
	if parts := strings.Split(node.GetId(), "~"); len(parts) == 4 && p.namespace == "" {
		if i := strings.LastIndexByte(parts[2], '.'); i >= 0 {
			p.namespace = parts[2][i+1:]
		}
	}
	if p.namespace == "" {
		p.namespace = defaultNamespace
	}
	if strings.HasPrefix(node.GetId(), "router~") {
		p.role = ingress
	}
	if fields[metadataGenerator].GetStringValue() == "grpc" || strings.HasPrefix(strings.ToLower(node.GetUserAgentName()), "grpc") {
		p.role = proxyless
	}
	if p.role != proxyless {
		p.credentials = cmp.Or(strings.TrimRight(fields[metadataCredentials].GetStringValue(), "/"), defaultCredentials)
	}
	p.large = p.role == proxyless || fields[metadataIstio].GetStringValue() != "" || takesPrograms(fields[metadataProgram].GetStringValue())
	p.onDemand = p.role == sidecar && wantsOnDemand(fields)
	switch fields[metadataInterception].GetStringValue() {
	case "REDIRECT", "TPROXY":
		p.captures = p.role == sidecar
		p.intact = p.captures && fields[metadataInterception].GetStringValue() == "TPROXY"
	}
	labels := fields[metadataLabels].GetStructValue().GetFields()
	said := make(map[string]string, len(labels))
	for name, value := range labels {
		said[name] = value.GetStringValue()
	}
	p.labels, p.labelled = labelText(said), len(said) > 0
	p.place = locality{node.GetLocality().GetRegion(), node.GetLocality().GetZone(), node.GetLocality().GetSubZone()}
	if p.place == (locality{}) {
		p.place = localityOf(strings.ReplaceAll(labels[localityLabel].GetStringValue(), ".", "/"))
	}
	return p
}
