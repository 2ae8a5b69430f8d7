package mapping

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"
	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
)

// instance is one registration of a service.
type instance struct {
	datacenter string
	node, id   string
	endpoint   string   // address and port in Consul
	reason     string   // why it is not served; empty if it is
	warnings   []string // name omitted parts
	address    string   // an IP address or a host
	weight     uint32
	ports      []instancePort
	wantsPort  uint32 // the service port that its meta asks for
	labels     map[string]string
	locality   string
}

func (i *instance) warn(format string, args ...any) {
	i.warnings = append(i.warnings, fmt.Sprintf(format, args...))
}

type instancePort struct {
	portKey
	number    uint32
	isDefault bool
}

// portKey identifies a port of the service in several instances. A port without a name is named after its protocol.
type portKey struct {
	name     string
	protocol protocol.Instance
}

func comparePortKeys(a, b portKey) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
}

func (i *instance) String() string { return fmt.Sprintf("instance %s on node %s", i.id, i.node) }

func compareInstances(first, second *instance) int {
	comparePorts := func(p, q instancePort) int {
		return cmp.Or(comparePortKeys(p.portKey, q.portKey), cmp.Compare(p.number, q.number))
	}
	return cmp.Or(cmp.Compare(first.datacenter, second.datacenter), cmp.Compare(first.node, second.node),
		cmp.Compare(first.id, second.id),
		cmp.Compare(first.address, second.address), slices.CompareFunc(first.ports, second.ports, comparePorts),
		cmp.Compare(first.weight, second.weight), cmp.Compare(first.locality, second.locality),
		cmp.Compare(fmt.Sprint(first.labels), fmt.Sprint(second.labels)))
}

// instanceOf converts an entry; nil if it belongs to a sidecar or gateway.
func (m *Mapper) instanceOf(datacenter string, serviceEntry *api.ServiceEntry) *instance {
	agentService, node := serviceEntry.Service, serviceEntry.Node
	if agentService.Kind != api.ServiceKindTypical {
		return nil
	}
	status := serviceEntry.Checks.AggregatedStatus()
	i := &instance{
		datacenter: cmp.Or(datacenter, agentService.Datacenter, node.Datacenter), node: node.Node, id: agentService.ID,
		weight: weightOf(agentService.Weights, status),
	}
	address, taggedPort := m.addressOf(agentService, node)
	i.endpoint = address
	if port := cmp.Or(taggedPort, agentService.Port); port != 0 {
		i.endpoint = net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(port))
	}
	i.address = parseAddress(address)
	i.ports = m.portsOf(agentService, taggedPort, i)
	switch {
	case i.address == "":
		i.reason = fmt.Sprintf("%q is no address that can be called", address)
		i.warn("%s", i.reason)
	case len(i.ports) == 0:
		i.reason = "it has no port"
		i.warn("%s", i.reason)
	case i.weight == 0:
		i.reason = "weight 0"
	case !slices.Contains(m.options.StrictChecks, status):
		i.reason = "checks are " + status
	}
	if wanted := agentService.Meta[m.options.ServicePortMeta]; wanted != "" {
		i.wantsPort = m.options.WantedPort(agentService.Meta)
		if i.wantsPort == 0 {
			i.warn("meta %s: %q is not a port", m.options.ServicePortMeta, wanted)
		}
	}
	i.labels = m.labelsOf(agentService)
	i.locality = m.localityOf(agentService, node, i.datacenter)
	return i
}

// weightOf returns the weight of an instance by its status. Instances of weight 0 are not served: Istio would read 0
// as 1. Agents default to 1; only old versions of Consul, without weights, have 0 for both.
func weightOf(agentWeights api.AgentWeights, status string) uint32 {
	if agentWeights.Passing == 0 && agentWeights.Warning == 0 {
		return 1
	}
	weight := agentWeights.Warning
	if status == api.HealthPassing {
		weight = agentWeights.Passing
	}
	return uint32(min(max(weight, 0), 65535)) // Consul's maximum; Envoy limits the sum to 32 bits
}

// addressOf returns the address to call, in Consul's own order of address translation, and the port of a tagged
// address.
func (m *Mapper) addressOf(agentService *api.AgentService, node *api.Node) (address string, port int) {
	if tag := m.options.TaggedAddress; tag != "" {
		if t, ok := agentService.TaggedAddresses[tag]; ok && t.Address != "" {
			return t.Address, t.Port
		}
		if agentService.Address == "" && node.TaggedAddresses[tag] != "" {
			return node.TaggedAddresses[tag], 0
		}
	}
	return cmp.Or(agentService.Address, node.Address), 0
}

// parseAddress returns an address in Istio's form; empty if it is invalid.
func parseAddress(text string) string {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	if address, err := netip.ParseAddr(text); err == nil {
		address = address.Unmap()
		if address.Zone() != "" || address.IsUnspecified() || address.IsMulticast() {
			return ""
		}
		return address.String()
	}
	text = strings.ToLower(strings.TrimSuffix(text, "."))
	if !names.IsHost(text) {
		return ""
	}
	return text
}

// portsOf returns the ports of an instance, each key once, the default one first.
func (m *Mapper) portsOf(agentService *api.AgentService, taggedPort int, i *instance) (ports []instancePort) {
	rank := map[bool]int{true: -1}
	declared := slices.SortedFunc(slices.Values(agentService.Ports), func(a, b api.ServicePort) int {
		return cmp.Or(rank[a.Default]-rank[b.Default], cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
	})
	if len(declared) == 0 {
		declared = []api.ServicePort{{Port: agentService.Port, Default: true}}
	}
	for _, servicePort := range declared {
		if servicePort.Default && taggedPort > 0 {
			servicePort.Port = taggedPort
		}
		if servicePort.Port <= 0 || servicePort.Port > 65535 {
			if servicePort.Name != "" || servicePort.Port != 0 {
				i.warn("port %s %d is none", servicePort.Name, servicePort.Port)
			}
			continue
		}
		protocol := m.protocolOf(agentService, servicePort.Name, servicePort.Default, i)
		key := portKey{cmp.Or(servicePort.Name, strings.ToLower(string(protocol))), protocol}
		if slices.ContainsFunc(ports, func(o instancePort) bool { return o.portKey == key }) {
			i.warn("port %s is there twice", servicePort.Name)
			continue
		}
		ports = append(ports, instancePort{key, uint32(servicePort.Port), servicePort.Default})
	}
	return ports
}

// protocolOf infers the protocol of a port. A declared protocol that Istio does not know is TCP: with the default,
// Envoy could parse it as HTTP.
func (m *Mapper) protocolOf(service *api.AgentService, port string, isDefault bool, i *instance) protocol.Instance {
	key := m.options.ProtocolMeta + "-" + port
	prefix := protocolPrefix(port)
	specific := port != "" && service.Meta[key] != ""
	if !specific {
		key = m.options.ProtocolMeta
	}
	declared := service.Meta[key]
	switch parsed := protocol.Parse(declared); {
	case !specific && !isDefault && !prefix.IsUnsupported(), declared == "" && !prefix.IsUnsupported():
		return prefix
	case declared == "":
		return protocol.Parse(m.options.DefaultProtocol)
	case parsed.IsUnsupported():
		i.warn("meta %s: Istio knows no protocol %q: tcp is used", key, declared)
		return protocol.TCP
	default:
		return parsed
	}
}

// protocolPrefix returns the protocol that the name of a port begins with, as in grpc-web-internal or http.
func protocolPrefix(port string) protocol.Instance {
	for {
		parsed := protocol.Parse(port)
		i := strings.LastIndexByte(port, '-')
		if !parsed.IsUnsupported() || i < 0 {
			return parsed
		}
		port = port[:i]
	}
}

// labelsOf makes labels of tags and meta. It omits invalid ones without a warning: most tags have other purposes. Meta
// takes precedence over tags, and the first tag over later ones.
func (m *Mapper) labelsOf(agentService *api.AgentService) map[string]string {
	labels := map[string]string{}
	add := func(key, value string) {
		if key = m.options.LabelPrefix + key; names.IsLabelKey(key) && names.IsLabelText(value) {
			if _, taken := labels[key]; !taken {
				labels[key] = value
			}
		}
	}
	for key, value := range agentService.Meta {
		protocols := m.options.ProtocolMeta
		if key != protocols && key != m.options.ServicePortMeta && !strings.HasPrefix(key, protocols+"-") {
			add(key, value)
		}
	}
	for _, tag := range agentService.Tags {
		if key, value, ok := m.cutTag(tag); ok {
			add(key, value)
		} else if slices.Contains(m.options.Tags, tag) {
			add(tag, "true")
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// cutTag cuts a tag at the first separator in it.
func (m *Mapper) cutTag(tag string) (key, value string, ok bool) {
	position, width := -1, 0
	for _, separator := range m.options.TagSeparators {
		// The longer one of two separators at the same position counts.
		i := strings.Index(tag, separator)
		if i >= 0 && (position < 0 || i < position || i == position && len(separator) > width) {
			position, width = i, len(separator)
		}
	}
	if position < 0 {
		return "", "", false
	}
	return tag[:position], tag[position+width:], true
}

// localityKeys are the usual keys of a node's meta for region, zone and subzone, because Consul defines none; the first
// one present counts.
var localityKeys = [...][]string{
	{"region"}, {"zone", "availability-zone", "availability_zone", "az"}, {"subzone", "rack"},
}

// localityOf returns a locality in Istio's form, region/zone/subzone; empty without one.
func (m *Mapper) localityOf(agentService *api.AgentService, node *api.Node, datacenter string) string {
	for _, from := range m.options.LocalityFrom {
		var candidates [][]string
		switch from {
		case localityConsul:
			for _, l := range []*api.Locality{agentService.Locality, node.Locality} {
				if l != nil {
					candidates = append(candidates, []string{l.Region, l.Zone})
				}
			}
		case localityMeta:
			parts := make([]string, len(localityKeys))
			for i, keys := range localityKeys {
				for _, key := range keys {
					parts[i] = cmp.Or(parts[i], node.Meta[key])
				}
			}
			if parts[1] != "" {
				parts[0] = cmp.Or(parts[0], datacenter)
			}
			candidates = append(candidates, parts)
		case localityDatacenter:
			candidates = append(candidates, []string{datacenter})
		}
		for _, parts := range candidates {
			if l := joinLocality(parts); l != "" {
				return l
			}
		}
	}
	return ""
}

// joinLocality joins the parts up to the first missing one, since Istio's localities are a hierarchy. istiod makes
// labels of the parts.
func joinLocality(parts []string) string {
	var valid []string
	for _, part := range parts {
		text := strings.Map(func(c rune) rune {
			if names.IsLabelText("x" + string(c) + "x") {
				return c
			}
			return '-'
		}, part)
		if text = names.Fit(strings.Trim(text, "-_."), part, names.MaxLabel); text == "" {
			break
		}
		valid = append(valid, text)
	}
	return strings.Join(valid, "/")
}
