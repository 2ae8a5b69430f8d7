package registry

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
)

// Selection selects names by patterns with *. Without Wanted, all names are wanted.
type Selection struct {
	Wanted, Skipped []string

	AnyCase bool // upper and lower case are equal
}

// Has reports whether a name is selected.
func (s Selection) Has(name string) bool {
	if s.AnyCase {
		name = strings.ToUpper(name)
	}
	matches := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			if s.AnyCase {
				pattern = strings.ToUpper(pattern)
			}
			matched, _ := path.Match(pattern, name)
			return matched
		})
	}
	return (len(s.Wanted) == 0 || matches(s.Wanted)) && !matches(s.Skipped)
}

// CheckPatterns checks the patterns of an option.
func CheckPatterns(key string, patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%s: %q is no name or pattern", key, p)
		}
	}
	return nil
}

// AnyHosts is the only value of the option hosts.
const AnyHosts = "any"

// CheckHosts checks the option hosts.
func CheckHosts(value string) error {
	if value != "" && value != AnyHosts {
		return fmt.Errorf("hosts: want %s or nothing, got %q", AnyHosts, value)
	}
	return nil
}

// Time fills in the default of an option that is zero, and checks it.
func Time(key string, value *time.Duration, standard, least, most time.Duration) error {
	if *value == 0 {
		*value = standard
	}
	if *value < least || *value > most {
		return fmt.Errorf("%s: want %s to %s, got %s", key, least, most, *value)
	}
	return nil
}

// MappingOptions are the options of mappings of hosts with one port. Zero values stand for the defaults.
type MappingOptions struct {
	// HostTemplate is the host of a service, made of {names}.
	HostTemplate string
	// Hosts is AnyHosts if registrants may choose hosts of Kubernetes clusters.
	Hosts string
	// Namespace is that of the objects.
	Namespace string
	// ProtocolMeta is the metadata key of an instance's protocol. Default: protocol.
	ProtocolMeta string
	// DefaultProtocol is the protocol of instances that name none.
	DefaultProtocol string
	// ServicePort is the port of all services, and ServicePortMeta the metadata key of a service's port. Default: derived,
	// service-port.
	ServicePort     int
	ServicePortMeta string
	// LabelMeta are the keys of metadata that become labels. Default: version.
	LabelMeta []string
	// VIPs selects the services that get a virtual address: tcp for those whose protocol has no host in it, all, or none.
	// Default: tcp.
	VIPs string
}

// WithDefaults returns the options with defaults for those that are not set.
func (o MappingOptions) WithDefaults(template, namespace, protocol string) MappingOptions {
	o.HostTemplate = cmp.Or(o.HostTemplate, template)
	o.Namespace = cmp.Or(o.Namespace, namespace)
	o.ProtocolMeta = cmp.Or(o.ProtocolMeta, "protocol")
	o.DefaultProtocol = cmp.Or(o.DefaultProtocol, protocol)
	o.ServicePortMeta = cmp.Or(o.ServicePortMeta, "service-port")
	o.VIPs = cmp.Or(o.VIPs, VIPsTCP)
	if len(o.LabelMeta) == 0 {
		o.LabelMeta = []string{"version"}
	}
	return o
}

// Check checks the options. names are those allowed in the template. An error begins with the key at fault.
func (o MappingOptions) Check(names ...string) error {
	if err := cmp.Or(CheckCommon(o.HostTemplate, o.Namespace, o.VIPs, names...), CheckLabels("labelMeta", o.LabelMeta),
		CheckHosts(o.Hosts)); err != nil {
		return err
	}
	if protocol.Parse(o.DefaultProtocol).IsUnsupported() {
		return fmt.Errorf("defaultProtocol: Istio knows no protocol %q", o.DefaultProtocol)
	}
	return CheckPort("servicePort", o.ServicePort)
}

// CheckPort checks an option that is a port; 0 if it is not set.
func CheckPort(key string, port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("%s: want 1 to 65535, got %d", key, port)
	}
	return nil
}

// Labels returns the labels of an instance with this metadata.
func (o MappingOptions) Labels(metadata map[string]string) map[string]string {
	labels := map[string]string{}
	for _, key := range o.LabelMeta {
		if value := metadata[key]; names.IsLabelText(value) {
			labels[key] = value
		}
	}
	return labels
}

// WantedPort returns the service's port for clients in the metadata of an instance; 0 if there is none.
func (o MappingOptions) WantedPort(metadata map[string]string) uint32 {
	return ParsePort(metadata[o.ServicePortMeta])
}

// ParsePort parses a port. It returns 0 for an invalid one.
func ParsePort(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// Protocol returns Istio's name of an instance's protocol, or of the default.
func (o MappingOptions) Protocol(text string) string {
	if p := protocol.Parse(text); !p.IsUnsupported() {
		return string(p)
	}
	return string(protocol.Parse(o.DefaultProtocol))
}

// CheckCommon checks the options that all mappings of registries have. placeholders are those allowed in the
// template.
func CheckCommon(template, namespace, vips string, placeholders ...string) error {
	example := template
	for _, p := range placeholder.FindAllString(template, -1) {
		name := p[strings.IndexByte(p, '{'):]
		if !slices.Contains(placeholders, name) {
			return fmt.Errorf("hostTemplate: unknown %s; known: %s", name, strings.Join(placeholders, ", "))
		}
		example = strings.ReplaceAll(example, name, "x")
	}
	switch {
	case !names.IsHost(example):
		return fmt.Errorf("hostTemplate: %q makes no host: %q is none", template, example)
	case !names.IsDNSLabel(namespace):
		return fmt.Errorf("namespace: %q is not the name of a namespace", namespace)
	case !slices.Contains([]string{VIPsTCP, VIPsAll, VIPsNone}, vips):
		return fmt.Errorf("vips: want %s, %s or %s, got %q", VIPsTCP, VIPsAll, VIPsNone, vips)
	}
	return nil
}

// CheckLabels checks an option with keys of labels.
func CheckLabels(key string, labels []string) error {
	for _, l := range labels {
		if !names.IsLabelKey(l) {
			return fmt.Errorf("%s: %q cannot be the key of a label", key, l)
		}
	}
	return nil
}
