package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/sources/registry"
)

// Options are the options of the objects that are made of services. Zero values stand for the defaults.
type Options struct {
	// HostTemplate is the host of a service, made of {interface}, {group} and {version}. A missing group or version goes
	// with the '-' or '.' before it. Without {group} or {version}, services that differ in these share a host. Default:
	// {interface}-{group}-{version}.
	HostTemplate string
	// Hosts is registry.AnyHosts if registrants may choose hosts of Kubernetes clusters.
	Hosts string
	// Namespace is that of the objects. Default: dubbo.
	Namespace string
	// ServicePorts are the ports on which clients find services, by protocol. Default: see README.md.
	ServicePorts map[string]int
	// LabelParams are parameters of providers that become labels of endpoints.
	LabelParams []string
	// VIPs selects services that get a virtual address: tcp for those with a port of a protocol without hosts, all, or
	// none. Default: tcp.
	VIPs string
	// Subsets are the subsets of a service's DestinationRule: by version, by group, or none. Default: none.
	Subsets string
	// WarmUp is how long a new endpoint has less than its share. Default: not at all.
	WarmUp time.Duration
	// Sidecars are the options of Sidecars; nil for no Sidecars.
	Sidecars *Sidecars
}

// The values of Options.Subsets.
const (
	subsetsVersion = "version"
	subsetsGroup   = "group"
)

// maxWarmUp is the longest time during which an endpoint has less than its share.
const maxWarmUp = 24 * time.Hour

// WithDefaults returns the options with defaults for those that are not set.
func (o Options) WithDefaults() Options {
	o.HostTemplate = cmp.Or(o.HostTemplate, "{interface}-{group}-{version}")
	o.Namespace = cmp.Or(o.Namespace, "dubbo")
	o.VIPs = cmp.Or(o.VIPs, registry.VIPsTCP)
	if o.Sidecars != nil {
		s := o.Sidecars.WithDefaults()
		o.Sidecars = &s
	}
	return o
}

func (o Options) validate() error {
	if !strings.Contains(o.HostTemplate, "{interface}") {
		return fmt.Errorf("hostTemplate: %q does not contain {interface}", o.HostTemplate)
	}
	if err := cmp.Or(registry.CheckCommon(o.HostTemplate, o.Namespace, o.VIPs, "{interface}", "{group}", "{version}"),
		registry.CheckLabels("labelParams", o.LabelParams), registry.CheckHosts(o.Hosts)); err != nil {
		return err
	}
	if !slices.Contains([]string{"", subsetsVersion, subsetsGroup}, o.Subsets) {
		return fmt.Errorf("subsets: want %s or %s, got %q", subsetsVersion, subsetsGroup, o.Subsets)
	}
	if o.WarmUp < 0 || o.WarmUp > 0 && o.WarmUp < time.Millisecond || o.WarmUp > maxWarmUp {
		return fmt.Errorf("warmUp: want 1ms to %s, got %s", maxWarmUp, o.WarmUp)
	}
	if o.Sidecars != nil {
		if err := o.Sidecars.validate(); err != nil {
			return err
		}
	}
	taken := map[int]string{}
	for _, protocol := range slices.Sorted(maps.Keys(o.ServicePorts)) {
		n := o.ServicePorts[protocol]
		if lower := strings.ToLower(protocol); lower != protocol {
			return fmt.Errorf("servicePorts: names of protocols are in lower case: want %s, got %s", lower, protocol)
		}
		if n < 1 || n > 65535 {
			return fmt.Errorf("servicePorts: %s: want 1 to 65535, got %d", protocol, n)
		}
		if existing, ok := taken[n]; ok {
			return fmt.Errorf("servicePorts: %s and %s have the same, %d", existing, protocol, n)
		}
		taken[n] = protocol
	}
	return nil
}
