package mapping

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tributary/internal/names"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// Options say what becomes of services. Zero values stand for the defaults.
type Options struct {
	// HostTemplate is the host of a service, made of {vip}, an element of the instance's vipAddress, and {app}, its application. Default:
	// {vip}.eureka.
	HostTemplate string
	// Namespace is that of the objects. Default: eureka.
	Namespace string
	// AddressFrom is what instances are called by: ip or hostname. Default: ip.
	AddressFrom string
	// Statuses are those with which instances are served. Default: UP.
	Statuses []string
	// ProtocolMeta is the key of an instance's metadata that names the protocol of its port. Default: protocol.
	ProtocolMeta string
	// DefaultProtocol is that of ports of which nothing is said. Secure ports are https. Default: http.
	DefaultProtocol string
	// ServicePort and SecureServicePort are the ports of all services, and ServicePortMeta the key of the metadata that says it. Default:
	// derived, service-port.
	ServicePort, SecureServicePort int
	ServicePortMeta                string
	// LabelMeta are the keys of metadata that become labels. Default: version.
	LabelMeta []string
	// Region is that of zones where instances do not say it. Default: none.
	Region string
	// VIPs says which services get a virtual address: tcp for those whose protocol has no host in it, all, or none. Default: tcp.
	VIPs string
}

// The values of Options.AddressFrom.
const (
	fromIP       = "ip"
	fromHostName = "hostname"
)

const defaultTemplate = "{vip}.eureka"

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// WithDefaults returns the options with the defaults in the place of what is not set.
func (o Options) WithDefaults() Options {
	o.HostTemplate = cmp.Or(o.HostTemplate, defaultTemplate)
	o.Namespace = cmp.Or(o.Namespace, "eureka")
	o.AddressFrom = cmp.Or(o.AddressFrom, fromIP)
	o.ProtocolMeta = cmp.Or(o.ProtocolMeta, "protocol")
	o.DefaultProtocol = cmp.Or(o.DefaultProtocol, "http")
	o.ServicePortMeta = cmp.Or(o.ServicePortMeta, "service-port")
	o.VIPs = cmp.Or(o.VIPs, registry.VIPsTCP)
	if len(o.LabelMeta) == 0 {
		o.LabelMeta = []string{"version"}
	}
	if len(o.Statuses) == 0 {
		o.Statuses = []string{wire.Up}
	}
	return o
}

func (o Options) validate() error {
	if !strings.Contains(o.HostTemplate, "{vip}") && !strings.Contains(o.HostTemplate, "{app}") {
		return fmt.Errorf("hostTemplate: %q must contain {vip} or {app}, by which services differ", o.HostTemplate)
	}
	err := registry.Common{
		HostTemplate: o.HostTemplate, Placeholder: placeholder, Known: []string{"{vip}", "{app}"},
		Namespace: o.Namespace, VIPs: o.VIPs, LabelsKey: "labelMeta", Labels: o.LabelMeta,
	}.Check()
	if err != nil {
		return err
	}
	if o.AddressFrom != fromIP && o.AddressFrom != fromHostName {
		return fmt.Errorf("addressFrom: want %s or %s, got %q", fromIP, fromHostName, o.AddressFrom)
	}
	for _, s := range o.Statuses {
		if all := []string{wire.Up, wire.Starting, wire.OutOfService, wire.Down, wire.Unknown}; !slices.Contains(all, s) {
			return fmt.Errorf("statuses: want some of %s, got %q", strings.Join(all, ", "), s)
		}
	}
	if err := registry.CheckProtocol(o.DefaultProtocol); err != nil {
		return err
	}
	for key, port := range map[string]int{"servicePort": o.ServicePort, "secureServicePort": o.SecureServicePort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("%s: want 1 to 65535, got %d", key, port)
		}
	}
	if o.ServicePort != 0 && o.ServicePort == o.SecureServicePort {
		return fmt.Errorf("secureServicePort: %d is the servicePort", o.SecureServicePort)
	}
	if o.Region != "" && !names.IsLabelText(o.Region) {
		return fmt.Errorf("region: %q is none", o.Region)
	}
	return nil
}
