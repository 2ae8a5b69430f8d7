package mapping

import (
	"cmp"
	"fmt"
	"strings"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/sources/registry"
)

// Options say which Services become ServiceEntries, and how. Zero values stand for the defaults.
type Options struct {
	// Export selects Services: all, or serviceExports for those with a ServiceExport. Default: all.
	Export string
	// HostTemplate is the host of a Service, made of {service} and {namespace}. Default: {service}.{namespace}.svc.cluster.local.
	HostTemplate string
	// Namespace is that of the objects. Default: that of each Service.
	Namespace string
	// Endpoints are those of a Service: pods, nodePorts, or loadBalancer. Default: pods.
	Endpoints string
	// Region is that of endpoints whose node names none, or is not read.
	Region string
	// DefaultProtocol is that of ports whose name and appProtocol say none. Default: none. istiod detects it; Envoys get TCP.
	DefaultProtocol string
	// VIPs selects the Services that get a virtual address: tcp for those whose protocol has no host in it, all, or none. Default: tcp.
	VIPs string
}

// The values of options.
const (
	ExportAll             = "all"
	ExportServiceExports  = "serviceExports"
	EndpointsPods         = "pods"
	EndpointsNodePorts    = "nodePorts"
	EndpointsLoadBalancer = "loadBalancer"
)

// WithDefaults returns the options with defaults for those that are not set.
func (o Options) WithDefaults() Options {
	o.Export = cmp.Or(o.Export, ExportAll)
	o.HostTemplate = cmp.Or(o.HostTemplate, "{service}.{namespace}.svc.cluster.local")
	o.Endpoints = cmp.Or(o.Endpoints, EndpointsPods)
	o.VIPs = cmp.Or(o.VIPs, registry.VIPsTCP)
	return o
}

// check checks options with defaults. An error begins with the key at fault.
func (o Options) check() error {
	switch {
	case o.Export != ExportAll && o.Export != ExportServiceExports:
		return fmt.Errorf("export: want %s or %s, got %q", ExportAll, ExportServiceExports, o.Export)
	case o.Endpoints != EndpointsPods && o.Endpoints != EndpointsNodePorts && o.Endpoints != EndpointsLoadBalancer:
		return fmt.Errorf("endpoints: want %s, %s or %s, got %q", EndpointsPods, EndpointsNodePorts, EndpointsLoadBalancer, o.Endpoints)
	case !strings.Contains(o.HostTemplate, "{service}") || !strings.Contains(o.HostTemplate, "{namespace}"):
		return fmt.Errorf("hostTemplate: %q must contain {service} and {namespace}, by which Services differ", o.HostTemplate)
	case o.Region != "" && !names.IsLabelText(o.Region):
		return fmt.Errorf("region: %q is no region", o.Region)
	case o.DefaultProtocol != "" && protocol.Parse(o.DefaultProtocol).IsUnsupported():
		return fmt.Errorf("defaultProtocol: Istio knows no protocol %q", o.DefaultProtocol)
	}
	return registry.CheckCommon(o.HostTemplate, cmp.Or(o.Namespace, "x"), o.VIPs, "{service}", "{namespace}")
}
