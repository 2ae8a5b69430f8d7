package mapping

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/internal/names"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// Options say what becomes of services. Zero values stand for the defaults. HostTemplate is made of {vip}, an element of the instance's
// vipAddress, and {app}, its application, by default {vip}.eureka. The namespace is eureka, and the protocol of plain ports http.
type Options struct {
	registry.MappingOptions

	// AddressFrom is what instances are called by: ip or hostname. Default: ip.
	AddressFrom string
	// Statuses are those with which instances are served. Default: UP.
	Statuses []string
	// SecureServicePort is the secure port of all services. Default: derived.
	SecureServicePort int
	// Region is that of zones where instances do not say it. Default: none.
	Region string
}

// The values of Options.AddressFrom.
const (
	fromIP       = "ip"
	fromHostName = "hostname"
)

// WithDefaults returns the options with the defaults in the place of what is not set.
func (o Options) WithDefaults() Options {
	o.MappingOptions = o.MappingOptions.WithDefaults("{vip}.eureka", "eureka", "http")
	o.AddressFrom = cmp.Or(o.AddressFrom, fromIP)
	if len(o.Statuses) == 0 {
		o.Statuses = []string{wire.Up}
	}
	return o
}

func (o Options) validate() error {
	if !strings.Contains(o.HostTemplate, "{vip}") && !strings.Contains(o.HostTemplate, "{app}") {
		return fmt.Errorf("hostTemplate: %q must contain {vip} or {app}, by which services differ", o.HostTemplate)
	}
	if err := cmp.Or(o.Check("{vip}", "{app}"), registry.CheckPort("secureServicePort", o.SecureServicePort)); err != nil {
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
	if o.ServicePort != 0 && o.ServicePort == o.SecureServicePort {
		return fmt.Errorf("secureServicePort: %d is the servicePort", o.SecureServicePort)
	}
	if o.Region != "" && !names.IsLabelText(o.Region) {
		return fmt.Errorf("region: %q is none", o.Region)
	}
	return nil
}
