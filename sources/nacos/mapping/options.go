package mapping

import (
	"fmt"
	"strings"

	"tributary/sources/registry"
)

// Options configure the conversion. Zero values stand for the defaults. HostTemplate has {service}, {group},
// {namespace} and {cluster}, by default {service}.{group}.{namespace}.nacos; without {cluster}, one host has the
// instances of all clusters. The default namespace is nacos, and the default protocol tcp, or http for instances of
// Spring Cloud.
type Options struct{ registry.MappingOptions }

// WithDefaults returns the options with the defaults filled in.
func (o Options) WithDefaults() Options {
	return Options{o.MappingOptions.WithDefaults("{service}.{group}.{namespace}.nacos", "nacos", "tcp")}
}

func (o Options) validate() error {
	if !strings.Contains(o.HostTemplate, "{service}") || !strings.Contains(o.HostTemplate, "{group}") {
		return fmt.Errorf("hostTemplate: %q must contain {service} and {group}, which distinguish services", o.HostTemplate)
	}
	return o.Check("{service}", "{group}", "{namespace}", "{cluster}")
}
