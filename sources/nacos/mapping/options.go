package mapping

import (
	"fmt"
	"strings"

	"tributary/sources/registry"
)

// Options say what becomes of services. Zero values stand for the defaults. HostTemplate is made of {service}, {group}, {namespace} and
// {cluster}, by default {service}.{group}.{namespace}.nacos; without {cluster} the instances of all clusters are in one host. The namespace
// is nacos, and the protocol tcp, or http of instances of Spring Cloud.
type Options struct{ registry.MappingOptions }

// WithDefaults returns the options with the defaults in the place of what is not set.
func (o Options) WithDefaults() Options {
	return Options{o.MappingOptions.WithDefaults("{service}.{group}.{namespace}.nacos", "nacos", "tcp")}
}

func (o Options) validate() error {
	if !strings.Contains(o.HostTemplate, "{service}") || !strings.Contains(o.HostTemplate, "{group}") {
		return fmt.Errorf("hostTemplate: %q must contain {service} and {group}, by which services differ", o.HostTemplate)
	}
	return o.Check("{service}", "{group}", "{namespace}", "{cluster}")
}
