package mapping

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"tributary/sources/registry"
)

// Options say what becomes of services. Zero values stand for the defaults.
type Options struct {
	// HostTemplate is the host of a service, made of {service}, {group}, {namespace} and {cluster}. Without {cluster} the instances of
	// all clusters are in one host. Default: {service}.{group}.{namespace}.nacos.
	HostTemplate string
	// Namespace is that of the objects. Default: nacos.
	Namespace string
	// ProtocolMeta is the key of an instance's metadata that names its protocol. Default: protocol.
	ProtocolMeta string
	// DefaultProtocol is that of services of which nothing is said. Default: tcp. Those of Spring Cloud are http.
	DefaultProtocol string
	// ServicePort is the port of all services, and ServicePortMeta the key of the metadata that says it. Default: derived, service-port.
	ServicePort     int
	ServicePortMeta string
	// LabelMeta are the keys of metadata that become labels. Default: version.
	LabelMeta []string
	// VIPs says which services get a virtual address: tcp for those whose protocol has no host in it, all, or none. Default: tcp.
	VIPs string
}

const defaultTemplate = "{service}.{group}.{namespace}.nacos"

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// WithDefaults returns the options with the defaults in the place of what is not set.
func (o Options) WithDefaults() Options {
	o.HostTemplate = cmp.Or(o.HostTemplate, defaultTemplate)
	o.Namespace = cmp.Or(o.Namespace, "nacos")
	o.ProtocolMeta = cmp.Or(o.ProtocolMeta, "protocol")
	o.DefaultProtocol = cmp.Or(o.DefaultProtocol, "tcp")
	o.ServicePortMeta = cmp.Or(o.ServicePortMeta, "service-port")
	o.VIPs = cmp.Or(o.VIPs, registry.VIPsTCP)
	if len(o.LabelMeta) == 0 {
		o.LabelMeta = []string{"version"}
	}
	return o
}

func (o Options) validate() error {
	if !strings.Contains(o.HostTemplate, "{service}") || !strings.Contains(o.HostTemplate, "{group}") {
		return fmt.Errorf("hostTemplate: %q must contain {service} and {group}, by which services differ", o.HostTemplate)
	}
	err := registry.Common{
		HostTemplate: o.HostTemplate, Placeholder: placeholder, Known: []string{"{service}", "{group}", "{namespace}", "{cluster}"},
		Namespace: o.Namespace, VIPs: o.VIPs, LabelsKey: "labelMeta", Labels: o.LabelMeta,
	}.Check()
	if err != nil {
		return err
	}
	if o.ServicePort < 0 || o.ServicePort > 65535 {
		return fmt.Errorf("servicePort: want 1 to 65535, got %d", o.ServicePort)
	}
	return registry.CheckProtocol(o.DefaultProtocol)
}
