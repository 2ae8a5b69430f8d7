package mapping

// Options are the settings of the mapping. The zero value is the default of each.
type Options struct {
	// HostTemplate is the host of a service: {service}, {datacenter}, {namespace}, {partition} and {peer} stand for
	// themselves. The default is "{service}.service.consul".
	HostTemplate string
	// Aliases is "datacenter" (the default: reviews.service.dc1.consul besides reviews.service.consul, with the
	// instances of that datacenter only), or "none".
	Aliases string
	// Namespace is that of the objects made, "consul" by default.
	Namespace string
	// ProtocolMeta is the key of a service's meta that names its protocol, "protocol" by default. Followed by "-" and the
	// name of a port it is that of one port.
	ProtocolMeta string
	// DefaultProtocol is that of a port of which nothing is said, "tcp" by default.
	DefaultProtocol string
	// ServicePort is the port of every service's (default) port. 0 derives it: see ServicePortMeta and Mapper.
	ServicePort int
	// ServicePortMeta is the key of a service's meta with its service port, "service-port" by default.
	ServicePortMeta string
	// TagSeparators cut a tag into the key and the value of a label, at the first of them in the tag. "=", "|" and ":"
	// by default.
	TagSeparators []string
	// Tags are the tags without a separator that become a label, with the value "true".
	Tags []string
	// LabelPrefix is put before the key of each label made of tags and meta.
	LabelPrefix string
	// LocalityFrom lists where a locality is looked for, in order: "locality" (Consul's own, of the service, then of its
	// node), "meta" (of the node: region, zone, subzone), "datacenter". All three by default; "none" is none.
	LocalityFrom []string
	// TaggedAddress is the tagged address to use where there is one: "wan", "lan_ipv6".
	TaggedAddress string
	// StrictChecks are the statuses that are served: "passing" and "warning" by default; "critical" and "maintenance".
	StrictChecks []string
	// Skip are services to leave out, by name or pattern (path.Match). Consul itself and sidecars and gateways are
	// always left out.
	Skip []string
	// Endpoints is "inline" (the default) or "workloadEntries".
	Endpoints string
	// VIPs is "tcp" (the default: services with a port whose protocol has no host in it get a virtual address), "all" or
	// "none".
	VIPs string
}

// Validate checks the options. The error names the option at fault.
func (o Options) Validate() error { return nil }
