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

// InboundUnit is translated as if it were a host: the inbound listeners of sidecars.
const InboundUnit = "~inbound"

// InboundPort is the port to which connections to a workload are redirected.
const InboundPort = 15006

// InboundPassthrough is the cluster of redirected connections to ports that no service has.
const InboundPassthrough = "InboundPassthroughCluster" //nolint:gosec // it is none of the credentials that it is taken for

// InboundName is Istio's name of the cluster, and of the routes, of a port of a workload.
func InboundName(port uint32) string { return "inbound|" + RouteName(port) + "||" }

// ServicePort is a port of a service that a workload serves.
type ServicePort struct {
	Host     string
	Number   uint32 // of the service
	Protocol string // in lower case; empty if it is to be found out of each connection
	Target   uint32 // of the workload
	External bool   // the service is not of the mesh

	Created time.Time    // the service
	Owner   resource.Key // the ServiceEntry
}

// Compare orders ports by the age of their services, then by host, as istiod does.
func (p ServicePort) Compare(o ServicePort) int {
	return cmp.Or(p.Created.Compare(o.Created), cmp.Compare(p.Host, o.Host), p.Owner.Compare(o.Owner))
}

// InboundText is an address, which may be empty, and the ports that a workload serves as a text, each once. Workloads with the same ports
// and without an address have the same text, whichever objects have the ports.
func InboundText(address string, ports []ServicePort) string {
	if address == "" && len(ports) == 0 {
		return ""
	}
	parts := []string{address}
	had := make(map[string]bool)
	for _, p := range ports {
		of := []string{p.Host, RouteName(p.Number), p.Protocol, RouteName(p.Target), strconv.FormatBool(p.External)}
		if text := keys.Join(of...); !had[text] {
			had[text], parts = true, append(parts, of...)
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
		number, _ := strconv.ParseUint(part[1], 10, 32) // as they were written
		target, _ := strconv.ParseUint(part[3], 10, 32)
		ports = append(ports, ServicePort{
			Host: part[0], Number: uint32(number), Protocol: part[2], Target: uint32(target), External: part[4] == "true",
		})
	}
	return parts[0], ports
}

// MaxAddresses is how many of its addresses a client can have considered. A machine in Istio has one of each family.
const MaxAddresses = 8

// AddressesOf returns the addresses of a client's workload: those of INSTANCE_IPS, else that of its id.
func AddressesOf(node *corev3.Node) (all []string) {
	for text := range strings.SplitSeq(node.GetMetadata().GetFields()[metadataAddresses].GetStringValue(), ",") {
		if resource.IsAddress(text) && len(all) < MaxAddresses {
			all = append(all, text)
		}
	}
	if parts := strings.Split(node.GetId(), "~"); len(all) == 0 && len(parts) == 4 {
		if resource.IsAddress(parts[1]) {
			all = append(all, parts[1])
		}
	}
	return all
}

// Inbound is what comes to the workload of a sidecar. It is not modified once it was made.
type Inbound struct {
	Captured    bool // connections are redirected
	Transparent bool // redirection keeps the original addresses
	Localhost   bool // the workload listens on the loopback interface; else where connections are meant for
	Ports       []Workport

	From string // equal for what is equal
}

// Workport is a port of a workload: one of services, or of the ingress of a Sidecar. Number and Host are those of the first service, or of
// the ingress listener, whose host is made of the Sidecar's name and namespace.
type Workport struct {
	ServicePort
	Hosts   []string // of the services with that number
	Address string   // of the listener; empty for ports without anything of their own
	Bound   bool     // it has a listener of its own; else a part in that of redirected connections

	Policy Policy                             // on the service; zero if there is none
	Pool   *networking.ConnectionPoolSettings // instead of that of Policy; nil if there is none

	Ingress  *networking.IstioIngressListener // nil for a port of services
	Endpoint string                           // where the workload listens: address:port, a Unix socket, or empty for as connections are meant
	Place    Place                            // of Ingress
}

// InboundProtocol returns what is spoken to a workload on a port with a protocol of Istio's, as in ServicePort. If terminated, TLS ends at
// the sidecar.
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
