package model

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networking "istio.io/api/networking/v1alpha3"

	keys "tributary/internal/names"
	"tributary/resource"
)

// InboundPseudoHost stands for the inbound listeners of sidecars.
const InboundPseudoHost = "~inbound"

// InboundCapturePort is the target of redirected connections to a workload.
const InboundCapturePort = 15006

// InboundPassthrough is the cluster of redirected connections to ports without a service.
const InboundPassthrough = "InboundPassthroughCluster" //nolint:gosec // not a credential

// InboundName is Istio's name of the cluster, and of the routes, of a port of a workload.
func InboundName(port uint32) string { return "inbound|" + RouteName(port) + "||" }

// ServicePort is a port of a service that a workload serves.
type ServicePort struct {
	Host     string
	Number   uint32 // of the service
	Protocol string // in lower case; empty to detect it for each connection
	Target   uint32 // of the workload
	External bool   // the service is not of the mesh

	Created time.Time    // the service
	Owner   resource.Key // the ServiceEntry
}

// Compare orders ports by the age of their services, then by host, as istiod does.
func (p ServicePort) Compare(o ServicePort) int {
	return cmp.Or(p.Created.Compare(o.Created), cmp.Compare(p.Host, o.Host), p.Owner.Compare(o.Owner))
}

// InboundText encodes an address, which may be empty, and the distinct ports that a workload serves. Workloads with the
// same ports and without an address have the same text, whichever objects define the ports.
func InboundText(address string, ports []ServicePort) string {
	if address == "" && len(ports) == 0 {
		return ""
	}
	parts := []string{address}
	listed := make(map[string]bool)
	for _, p := range ports {
		fields := []string{p.Host, RouteName(p.Number), p.Protocol, RouteName(p.Target), strconv.FormatBool(p.External)}
		if text := keys.Join(fields...); !listed[text] {
			listed[text] = true
			parts = append(parts, fields...)
		}
	}
	return keys.Join(parts...)
}

// ServedPorts returns the address and the ports of Inbound.
func (p *Profile) ServedPorts() (address string, ports []ServicePort) {
	parts := keys.Split(p.Inbound)
	if len(parts) == 0 {
		return "", nil
	}
	for part := range slices.Chunk(parts[1:], 5) {
		number, _ := strconv.ParseUint(part[1], 10, 32) // InboundText wrote them
		target, _ := strconv.ParseUint(part[3], 10, 32)
		ports = append(ports, ServicePort{
			Host: part[0], Number: uint32(number), Protocol: part[2], Target: uint32(target), External: part[4] == "true",
		})
	}
	return parts[0], ports
}

// MaxAddresses limits the addresses of a client. A machine in Istio has one of each family.
const MaxAddresses = 8

// AddressesOf returns the addresses of a client's workload: those of INSTANCE_IPS, else that in its id.
func AddressesOf(node *corev3.Node) (addresses []string) {
	for text := range strings.SplitSeq(node.GetMetadata().GetFields()[metadataAddresses].GetStringValue(), ",") {
		if resource.IsAddress(text) && len(addresses) < MaxAddresses {
			addresses = append(addresses, text)
		}
	}
	if parts := strings.Split(node.GetId(), "~"); len(addresses) == 0 && len(parts) == 4 {
		if resource.IsAddress(parts[1]) {
			addresses = append(addresses, parts[1])
		}
	}
	return addresses
}

// Inbound describes the inbound traffic of a sidecar's workload. It is immutable.
type Inbound struct {
	Captured    bool // connections are redirected
	Transparent bool // redirection keeps the original addresses
	Localhost   bool // the workload listens on the loopback interface; else at the destination of connections
	Ports       []WorkloadPort

	From string // equal for equal content
}

// WorkloadPort is a port of a workload: of services, or of the ingress of a Sidecar. Number and Host are those of the
// first service, or of the ingress listener; the host of the latter consists of the Sidecar's name and namespace.
type WorkloadPort struct {
	ServicePort
	Hosts   []string // of the services with that number
	Address string   // of the listener; empty for ports without special settings
	Bound   bool     // it has a separate listener; else a filter chain in that of redirected connections

	Policy Policy                             // of the service, or zero
	Pool   *networking.ConnectionPoolSettings // replaces that of Policy, unless nil

	Ingress *networking.IstioIngressListener // nil for a port of services
	// of the workload: address:port, a Unix socket, or empty for the destination of connections
	Endpoint string
	Place    Place // of Ingress
}

// InboundProtocol returns the protocol between sidecar and workload, as in ServicePort, for a protocol name of Istio.
// terminated says that TLS ends at the sidecar.
func InboundProtocol(name string, terminated bool) string {
	switch name = strings.ToLower(name); name {
	case "http", "http2", "grpc", "grpc-web":
		return name
	case "http_proxy":
		return "http"
	case "https":
		if terminated {
			return "http"
		}
		return "tcp"
	case "tcp", "tls", "udp", "mongo", "redis", "mysql":
		return "tcp"
	}
	return ""
}
