package mapping

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
)

// Options are the settings of the mapping. The zero value is the default of each.
type Options struct {
	// HostTemplate is the host of a service: {service}, {datacenter}, {namespace}, {partition} and {peer} stand for
	// themselves; "default" and "local" stand in for what a service has not. The default is "{service}.service.consul".
	//
	// Services of a namespace, partition or peer that the template does not name get a host of their own all the same, as Consul's DNS
	// has it: reviews.service.team.ns.consul. Those of several datacenters that it does not name are one service.
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
	// ServicePort is the number of every service's default port. 0 derives it: see Mapper.
	ServicePort int
	// ServicePortMeta is the key of a service's meta with the number of its default port, "service-port" by default.
	ServicePortMeta string
	// TagSeparators cut a tag into the key and the value of a label, at the first of them in the tag. "=", "|" and ":"
	// by default.
	TagSeparators []string
	// Tags are the tags without a separator that become a label, with the value "true".
	Tags []string
	// LabelPrefix is put before the key of each label made of tags and meta.
	LabelPrefix string
	// LocalityFrom lists where a locality is looked for, in order: "locality" (Consul's own, of the service, then of its
	// node), "meta" (of the node: region, zone, subzone), "datacenter". All three by default; "none" alone is none.
	LocalityFrom []string
	// TaggedAddress is the tagged address to use where there is one: "wan", "lan_ipv6".
	TaggedAddress string
	// StrictChecks are the statuses that are served: "passing" and "warning" by default; "critical" and "maintenance".
	StrictChecks []string
	// Skip are services to leave out, by name or pattern (path.Match). Consul itself, sidecars and gateways are
	// always left out.
	Skip []string
	// Endpoints is "inline" (the default) or "workloadEntries".
	Endpoints string
	// VIPs is "tcp" (the default: services with a port whose protocol does not carry the host get a virtual address),
	// "all" or "none".
	VIPs string
}

// The values of options.
const (
	aliasesDatacenter   = "datacenter"
	endpointsInline     = "inline"
	endpointsWorkloads  = "workloadEntries"
	vipsTCP             = "tcp"
	vipsAll             = "all"
	localityConsul      = "locality"
	localityMeta        = "meta"
	localityDatacenter  = "datacenter"
	none                = "none"
	defaultHostTemplate = "{service}.service.consul"
)

// WithDefaults returns the options with the defaults in the place of what is not set.
func (o Options) WithDefaults() Options {
	o.HostTemplate = cmp.Or(o.HostTemplate, defaultHostTemplate)
	o.Aliases = cmp.Or(o.Aliases, aliasesDatacenter)
	o.Namespace = cmp.Or(o.Namespace, "consul")
	o.ProtocolMeta = cmp.Or(o.ProtocolMeta, "protocol")
	o.DefaultProtocol = cmp.Or(o.DefaultProtocol, "tcp")
	o.ServicePortMeta = cmp.Or(o.ServicePortMeta, "service-port")
	o.Endpoints = cmp.Or(o.Endpoints, endpointsInline)
	o.VIPs = cmp.Or(o.VIPs, vipsTCP)
	if len(o.TagSeparators) == 0 {
		o.TagSeparators = []string{"=", "|", ":"}
	}
	if len(o.LocalityFrom) == 0 {
		o.LocalityFrom = []string{localityConsul, localityMeta, localityDatacenter}
	}
	if len(o.StrictChecks) == 0 {
		o.StrictChecks = []string{"passing", "warning"}
	}
	return o
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// Validate checks the options. The error names the option at fault.
func (o Options) Validate() error {
	o = o.WithDefaults()
	if err := checkTemplate(o.HostTemplate); err != nil {
		return fmt.Errorf("hostTemplate: %w", err)
	}
	if !names.IsDNSLabel(o.Namespace) {
		return fmt.Errorf("namespace: %q is not the name of a namespace", o.Namespace)
	}
	if protocol.Parse(o.DefaultProtocol).IsUnsupported() {
		return fmt.Errorf("defaultProtocol: Istio knows no protocol %q", o.DefaultProtocol)
	}
	if o.ServicePort < 0 || o.ServicePort > 65535 {
		return fmt.Errorf("servicePort: %d is not a port", o.ServicePort)
	}
	if slices.Contains(o.TagSeparators, "") {
		return fmt.Errorf("tagSeparators: one is empty")
	}
	if o.LabelPrefix != "" && !names.IsLabelKey(o.LabelPrefix+"x") {
		return fmt.Errorf("labelPrefix: %q cannot begin the key of a label", o.LabelPrefix)
	}
	for _, tag := range o.Tags {
		if !names.IsLabelKey(o.LabelPrefix + tag) {
			return fmt.Errorf("tags: %q cannot be the key of a label", o.LabelPrefix+tag)
		}
	}
	for _, pattern := range o.Skip {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("skip: %q: %w", pattern, err)
		}
	}
	if len(o.LocalityFrom) > 1 && slices.Contains(o.LocalityFrom, none) {
		return fmt.Errorf("localityFrom: %q stands alone", none)
	}
	for _, c := range []struct {
		option string
		values []string
		may    []string
	}{
		{"aliases", []string{o.Aliases}, []string{aliasesDatacenter, none}},
		{"localityFrom", o.LocalityFrom, []string{localityConsul, localityMeta, localityDatacenter, none}},
		{"strictChecks", o.StrictChecks, []string{"passing", "warning", "critical", "maintenance"}},
		{"endpoints", []string{o.Endpoints}, []string{endpointsInline, endpointsWorkloads}},
		{"vips", []string{o.VIPs}, []string{vipsTCP, vipsAll, none}},
	} {
		for _, v := range c.values {
			if !slices.Contains(c.may, v) {
				return fmt.Errorf("%s: %q is none of %s", c.option, v, strings.Join(c.may, ", "))
			}
		}
	}
	return nil
}

// checkTemplate checks that hosts made of a template are hosts, and differ where services do.
func checkTemplate(template string) error {
	for _, p := range placeholder.FindAllString(template, -1) {
		if !slices.Contains([]string{"{service}", "{datacenter}", "{namespace}", "{partition}", "{peer}"}, p) {
			return fmt.Errorf("%s stands for nothing: only {service}, {datacenter}, {namespace}, {partition}, {peer}", p)
		}
	}
	if !strings.Contains(template, "{service}") {
		return fmt.Errorf("%q has no {service}: all services would have one host", template)
	}
	for l := range strings.SplitSeq(template, ".") {
		// "a-b" and "c" would make the same label as "a" and "b-c".
		if len(placeholder.FindAllString(l, -1)) > 1 {
			return fmt.Errorf("%q: two placeholders need a dot between them", l)
		}
	}
	domain := template[strings.LastIndexByte(template, '.')+1:]
	if domain == template || domain != placeholder.ReplaceAllString(domain, "") {
		return fmt.Errorf("%q does not end in a domain, such as in {service}.service.consul", template)
	}
	if example := placeholder.ReplaceAllString(template, "x"); !names.IsHost(example) {
		return fmt.Errorf("%q makes no host: %q is none", template, example)
	}
	return nil
}
