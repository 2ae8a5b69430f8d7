package mapping

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
)

// port is a port of a service.
type port struct {
	dubboName string // Dubbo's protocol
	number    uint32
	name      string
	protocol  string // Istio's
}

// knownProtocols are Dubbo's protocols with Istio's protocol and the port for clients. The port is the same for all
// services and does not depend on instances, so that it is stable and the same in all replicas. It is Dubbo's default,
// apart from a few that would clash on one host.
var knownProtocols = map[string]struct {
	protocol protocol.Instance
	number   uint32
}{
	"dubbo":      {protocol.TCP, 20880},
	"tri":        {protocol.GRPC, 50051},
	"grpc":       {protocol.GRPC, 50052},
	"rest":       {protocol.HTTP, 8080},
	"http":       {protocol.HTTP, 80},
	"jsonrpc":    {protocol.HTTP, 8081},
	"hessian":    {protocol.HTTP, 8082},
	"webservice": {protocol.HTTP, 8083},
	"rmi":        {protocol.TCP, 1099},
	"thrift":     {protocol.TCP, 40880},
	"redis":      {protocol.TCP, 6379},
	"memcached":  {protocol.TCP, 11211},
}

// Protocols returns the names of the known protocols.
func Protocols() []string { return slices.Sorted(maps.Keys(knownProtocols)) }

// Unknown protocols are TCP, on a port that is derived from their name, in a range of their own.
const (
	firstUnknown = 30000
	unknownRange = 10000
)

// maxProtocols bounds the protocols of a service. Dubbo knows about a dozen; many more are a mistake or an attack.
const maxProtocols = 64

// ports returns the ports of a service with these protocols, which are sorted, and the protocols beyond maxProtocols.
func (m *Mapper) ports(protocols []string) (ports []port, unnamed []string) {
	// Configured ports come first, then known ones: of two that clash the derived one moves.
	rank := func(name string) int {
		if m.o.ServicePorts[name] > 0 {
			return 0
		}
		if _, ok := knownProtocols[name]; ok {
			return 1
		}
		return 2
	}
	ordered := slices.Clone(protocols)
	slices.SortStableFunc(ordered, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	limit := min(maxProtocols, len(ordered))
	numbers, taken := map[uint32]bool{}, map[string]bool{}
	for _, name := range ordered[:limit] {
		port := port{dubboName: name, number: uint32(m.o.ServicePorts[name]), protocol: string(protocol.TCP)}
		if k, ok := knownProtocols[name]; ok {
			port.protocol = string(k.protocol)
			port.number = cmp.Or(port.number, k.number)
		}
		for salt := 0; port.number == 0 || numbers[port.number]; salt++ {
			sum := sha256.Sum256(append([]byte(name), byte(salt), byte(salt>>8)))
			port.number = firstUnknown + binary.BigEndian.Uint32(sum[:])%unknownRange
		}
		port.name = prefixOf(port.protocol) + names.Label(name, name)
		if taken[port.name] {
			port.name = names.Hashed(port.name, name, names.MaxLabel)
		}
		port.name = names.Fit(port.name, name, names.MaxLabel)
		numbers[port.number], taken[port.name] = true, true
		ports = append(ports, port)
	}
	slices.SortFunc(ports, func(a, b port) int { return cmp.Compare(a.dubboName, b.dubboName) })
	return ports, ordered[limit:]
}

func prefixOf(istio string) string {
	switch istio {
	case string(protocol.GRPC):
		return "grpc-"
	case string(protocol.HTTP):
		return "http-"
	}
	return "tcp-"
}
