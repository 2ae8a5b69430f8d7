package mapping

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"
	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
)

// instance is what matters of one registration of a service.
type instance struct {
	datacenter string
	node, id   string
	served     bool   // it is healthy enough, has an address, a port and a weight
	address    string // an IP address or a host
	isHost     bool
	weight     uint32
	ports      []instancePort
	wantsPort  uint32 // the service port that its meta asks for
	labels     map[string]string
	locality   string
}

type instancePort struct {
	portKey
	number    uint32
	isDefault bool
}

// portKey is what makes ports of several instances the same port of the service. A port without a name is named after its
// protocol.
type portKey struct {
	name     string
	protocol protocol.Instance
}

func comparePortKeys(a, b portKey) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
}

// carriesHost reports whether requests carry the host that they are for, so that services can share a port.
func (k portKey) carriesHost() bool { return k.protocol.IsHTTP() || k.protocol.IsTLS() }

func (i *instance) String() string { return fmt.Sprintf("instance %s on node %s", i.id, i.node) }

func compareInstances(a, b *instance) int {
	return cmp.Or(cmp.Compare(a.datacenter, b.datacenter), cmp.Compare(a.node, b.node), cmp.Compare(a.id, b.id),
		cmp.Compare(a.address, b.address), slices.CompareFunc(a.ports, b.ports, func(p, q instancePort) int {
			return cmp.Or(comparePortKeys(p.portKey, q.portKey), cmp.Compare(p.number, q.number))
		}), cmp.Compare(a.weight, b.weight), cmp.Compare(a.locality, b.locality), cmp.Compare(fmt.Sprint(a.labels), fmt.Sprint(b.labels)))
}

// instanceOf converts an entry, or returns nil if it is not one of a service to call. say is told what is left out of it.
func (m *Mapper) instanceOf(datacenter string, e *api.ServiceEntry, say func(*instance, string)) *instance {
	if e == nil || e.Service == nil || e.Service.Kind != api.ServiceKindTypical {
		return nil
	}
	s, n := e.Service, e.Node
	if n == nil {
		n = &api.Node{}
	}
	i := &instance{datacenter: cmp.Or(datacenter, s.Datacenter, n.Datacenter), node: n.Node, id: s.ID}
	status := e.Checks.AggregatedStatus()
	i.weight = weightOf(s.Weights, status)
	i.served = slices.Contains(m.o.StrictChecks, status) && i.weight > 0

	address, taggedPort := m.addressOf(s, n)
	i.address, i.isHost = parseAddress(address)
	if i.address == "" {
		i.served = false
		say(i, fmt.Sprintf("%q is no address that can be called", address))
	}
	i.ports = m.portsOf(s, taggedPort, func(what string) { say(i, what) })
	if len(i.ports) == 0 {
		i.served = false
		say(i, "it has no port")
	}
	if v := s.Meta[m.o.ServicePortMeta]; v != "" {
		if p, err := strconv.ParseUint(v, 10, 16); err == nil && p > 0 {
			i.wantsPort = uint32(p)
		} else {
			say(i, fmt.Sprintf("meta %s: %q is not a port", m.o.ServicePortMeta, v))
		}
	}
	i.labels = m.labelsOf(s)
	i.locality = m.localityOf(s, n, i.datacenter)
	return i
}

// weightOf returns the weight of an instance by its status. 0 is none: to Istio it would be 1. Agents fill in 1 where nothing is
// said; both at 0 come from Consul before it knew weights.
func weightOf(w api.AgentWeights, status string) uint32 {
	if w.Passing == 0 && w.Warning == 0 {
		return 1
	}
	weight := w.Warning
	if status == api.HealthPassing {
		weight = w.Passing
	}
	return uint32(min(max(weight, 0), 65535)) // Consul's maximum; a larger sum than 32 bits would not do for Envoy
}

// addressOf returns the address to call, in the order in which Consul itself translates addresses, and the port that a tagged
// address brings with it.
func (m *Mapper) addressOf(s *api.AgentService, n *api.Node) (address string, port int) {
	if tag := m.o.TaggedAddress; tag != "" {
		if t, ok := s.TaggedAddresses[tag]; ok && t.Address != "" {
			return t.Address, t.Port
		}
		if s.Address == "" && n.TaggedAddresses[tag] != "" {
			return n.TaggedAddresses[tag], 0
		}
	}
	return cmp.Or(s.Address, n.Address), 0
}

// parseAddress returns an address as Istio takes it, or nothing.
func parseAddress(s string) (address string, host bool) {
	s = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if ip, err := netip.ParseAddr(s); err == nil {
		ip = ip.Unmap()
		if ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
			return "", false
		}
		return ip.String(), false
	}
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if !names.IsHost(s) {
		return "", false
	}
	return s, true
}

// portsOf returns the ports of an instance, each key once, the default one first.
func (m *Mapper) portsOf(s *api.AgentService, taggedPort int, say func(string)) []instancePort {
	var ports []instancePort
	add := func(name string, number int, isDefault bool) {
		if isDefault && taggedPort > 0 {
			number = taggedPort
		}
		if number <= 0 || number > 65535 {
			if name != "" || number != 0 {
				say(fmt.Sprintf("port %s %d is none", name, number))
			}
			return
		}
		p := m.protocolOf(s, name, isDefault, say)
		key := portKey{cmp.Or(name, strings.ToLower(string(p))), p}
		if slices.ContainsFunc(ports, func(o instancePort) bool { return o.portKey == key }) {
			say(fmt.Sprintf("port %s is there twice", name))
			return
		}
		ports = append(ports, instancePort{key, uint32(number), isDefault})
	}
	named := slices.SortedFunc(slices.Values(s.Ports), func(a, b api.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
	})
	for _, p := range named {
		if p.Default {
			add(p.Name, p.Port, true)
		}
	}
	if len(s.Ports) == 0 {
		add("", s.Port, true)
	}
	for _, p := range named {
		if !p.Default {
			add(p.Name, p.Port, false)
		}
	}
	return ports
}

// protocolOf infers the protocol of a port. A protocol that is declared and that Istio does not know is TCP: to take it for the
// default could have HTTP parsed where there is none.
func (m *Mapper) protocolOf(s *api.AgentService, port string, isDefault bool, say func(string)) protocol.Instance {
	declared := func(key string) (protocol.Instance, bool) {
		v := s.Meta[key]
		if v == "" {
			return "", false
		}
		if p := protocol.Parse(v); !p.IsUnsupported() {
			return p, true
		}
		say(fmt.Sprintf("meta %s: Istio knows no protocol %q: tcp is used", key, v))
		return protocol.TCP, true
	}
	if port != "" {
		if p, ok := declared(m.o.ProtocolMeta + "-" + port); ok {
			return p
		}
	}
	if isDefault {
		if p, ok := declared(m.o.ProtocolMeta); ok {
			return p
		}
	}
	if p := protocolPrefix(port); !p.IsUnsupported() {
		return p
	}
	if p, ok := declared(m.o.ProtocolMeta); ok {
		return p
	}
	return protocol.Parse(m.o.DefaultProtocol)
}

// protocolPrefix returns the protocol that the name of a port begins with, as in grpc-web-internal or http.
func protocolPrefix(port string) protocol.Instance {
	for {
		if p := protocol.Parse(port); !p.IsUnsupported() {
			return p
		}
		i := strings.LastIndexByte(port, '-')
		if i < 0 {
			return protocol.Unsupported
		}
		port = port[:i]
	}
}
