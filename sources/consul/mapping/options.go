package mapping

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/internal/names"
	"tributary/sources/registry"
)

// Options are the settings of the mapping. The zero value of each is its default; config.Consul describes them.
//
// HostTemplate may have {service}, {datacenter}, {namespace}, {partition} and {peer}; "default" and "local" stand for
// empty fields. If the template does not name a namespace, partition or peer, its services get a host of their own, as
// in Consul's DNS: reviews.service.team.ns.consul. If it does not name the datacenter, the services of all datacenters
// with one name are one service.
// ProtocolMeta, followed by "-" and the name of a port, is the key of the protocol of that port. LabelMeta has no
// effect.
type Options struct {
	registry.MappingOptions
	Aliases       string   // datacenter, for a further host with the instances of each datacenter, or none
	TagSeparators []string // the first one in a tag cuts it into the key and the value of a label
	Tags          []string // tags without a separator that become a label with the value "true"
	LabelPrefix   string   // begins the keys of labels made of tags and meta
	// LocalityFrom lists where a locality is looked for, in order: locality (Consul's own, of the service, then of the
	// node), meta (region, zone and subzone of the node), datacenter; or none.
	LocalityFrom  []string
	TaggedAddress string   // the tagged address to use, if an instance has it: wan, lan_ipv6
	StrictChecks  []string // statuses of served instances
	Endpoints     string   // inline or workloadEntries
}

// The values of options.
const (
	aliasesDatacenter  = "datacenter"
	endpointsInline    = "inline"
	endpointsWorkloads = "workloadEntries"
	localityConsul     = "locality"
	localityMeta       = "meta"
	localityDatacenter = "datacenter"
	noValue            = "none"
)

// WithDefaults returns the options with their defaults.
func (o Options) WithDefaults() Options {
	o.MappingOptions = o.MappingOptions.WithDefaults("{service}.service.consul", "consul", "tcp")
	o.Aliases = cmp.Or(o.Aliases, aliasesDatacenter)
	o.Endpoints = cmp.Or(o.Endpoints, endpointsInline)
	for _, list := range []struct {
		values   *[]string
		standard []string
	}{
		{&o.TagSeparators, []string{"=", "|", ":"}},
		{&o.LocalityFrom, []string{localityConsul, localityMeta, localityDatacenter}},
		{&o.StrictChecks, []string{"passing", "warning"}},
	} {
		if len(*list.values) == 0 {
			*list.values = list.standard
		}
	}
	return o
}

// check checks options with defaults. The error begins with the key at fault.
func (o Options) check() error {
	if err := o.Check("{service}", "{datacenter}", "{namespace}", "{partition}", "{peer}"); err != nil {
		return err
	}
	labels := strings.Split(o.HostTemplate, ".")
	switch {
	case !strings.Contains(o.HostTemplate, "{service}"):
		return fmt.Errorf("hostTemplate: %q has no {service}: all services would have one host", o.HostTemplate)
	case slices.ContainsFunc(labels, func(label string) bool { return strings.Count(label, "{") > 1 }):
		// Else "a-b" and "c" would have the host of "a" and "b-c".
		return fmt.Errorf("hostTemplate: %q: two placeholders need a dot between them", o.HostTemplate)
	case len(labels) == 1 || strings.Contains(labels[len(labels)-1], "{"):
		return fmt.Errorf("hostTemplate: %q does not end in a domain, such as in {service}.service.consul",
			o.HostTemplate)
	case slices.Contains(o.TagSeparators, ""):
		return fmt.Errorf("tagSeparators: one is empty")
	case o.LabelPrefix != "" && !names.IsLabelKey(o.LabelPrefix+"x"):
		return fmt.Errorf("labelPrefix: %q cannot begin the key of a label", o.LabelPrefix)
	case len(o.LocalityFrom) > 1 && slices.Contains(o.LocalityFrom, noValue):
		return fmt.Errorf("localityFrom: %q stands alone", noValue)
	}
	for _, tag := range o.Tags {
		if !names.IsLabelKey(o.LabelPrefix + tag) {
			return fmt.Errorf("labelTags: %q cannot be the key of a label", o.LabelPrefix+tag)
		}
	}
	for _, setting := range []struct {
		option  string
		values  []string
		allowed []string
	}{
		{"aliases", []string{o.Aliases}, []string{aliasesDatacenter, noValue}},
		{"localityFrom", o.LocalityFrom, []string{localityConsul, localityMeta, localityDatacenter, noValue}},
		{"strictChecks", o.StrictChecks, []string{"passing", "warning", "critical", "maintenance"}},
		{"endpoints", []string{o.Endpoints}, []string{endpointsInline, endpointsWorkloads}},
	} {
		for _, v := range setting.values {
			if !slices.Contains(setting.allowed, v) {
				return fmt.Errorf("%s: %q is none of %s", setting.option, v, strings.Join(setting.allowed, ", "))
			}
		}
	}
	return nil
}
