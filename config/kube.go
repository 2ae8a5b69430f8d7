package config

import (
	"cmp"

	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/kube"
)

// Kube has the settings of k8s sources. Zero values stand for the defaults of package kube.
type Kube struct {
	Connection
	Written

	// Namespaces to read, each by itself, so that Roles suffice. Default: the whole cluster.
	Namespaces []string `json:"namespaces,omitempty" reading:"set"`
	// Kinds of Istio to read; none alone for none. Default: all with a CRD in the cluster.
	Kinds []string `json:"kinds,omitempty" reading:"set"`
	// Selects objects of Istio by their labels, as kubectl -l does, such as mesh=yes. The API server applies it.
	LabelSelector string `json:"labelSelector,omitempty"`
	// Leaves out objects labelled istio.io/rev for another revision.
	Revision string `json:"revision,omitempty"`
	// Unknown fields: error refuses the object, warn takes it without the field. Default: warn.
	UnknownFields string `json:"unknownFields,omitempty"`
	// Completes host names without a dot in VirtualServices and DestinationRules, as istiod does. Default: cluster.local.
	DomainSuffix string `json:"domainSuffix,omitempty"`
	// How long an object stays that is no longer listed after the cluster went back in time, or after its CRD was missing.
	// Default: 5m.
	Hold Duration `json:"hold,omitempty" reading:"-"`
	// Makes ServiceEntries of the Services of the cluster; {} with the defaults. Default: none.
	Services *KubeServices `json:"services,omitempty"`
	// Makes Istio's objects of the Ingresses and the objects of Gateway API; {} with the defaults. Default: they are not
	// read.
	Derive *Derive `json:"derive,omitempty"`
}

// KubeServices has the settings of the objects made of Services. Zero values stand for the defaults of package mapping.
type KubeServices struct {
	// Which Services: all, or serviceExports for those with a ServiceExport. Default: all.
	Export string `json:"export,omitempty"`
	// Host of a Service, with {service} and {namespace}. Default: {service}.{namespace}.svc.cluster.local.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// Where clients reach a Service: pods, nodePorts, or loadBalancer. Default: pods.
	Endpoints string `json:"endpoints,omitempty"`
	// Whether the cluster's nodes are read, which have the regions; nodePorts needs them, too. Default: false.
	Nodes bool `json:"nodes,omitempty"`
	// Whether to read the service accounts of the cluster's Pods for the identities of endpoints. Default: false.
	ServiceAccounts bool `json:"serviceAccounts,omitempty"`
	// Region where the node says none, or is not read. Default: none.
	Region string `json:"region,omitempty"`
	// Services that get a virtual address: tcp for those whose protocol has no host in it, all, or none. Default: tcp.
	VIPs string `json:"vips,omitempty"`
}

// Source returns the settings as package kube takes them.
func (s *Kube) Source() (settings kube.Settings) {
	assign(&settings, *s)
	settings.TLS = s.tls()
	if s.Services != nil {
		settings.Services = new(kube.Services)
		assign(settings.Services, *s.Services)
	}
	if s.Derive != nil {
		settings.Derive = new(derive.Options)
		assign(settings.Derive, *s.Derive)
		settings.Derive.DomainSuffix = cmp.Or(settings.Derive.DomainSuffix, s.DomainSuffix)
	}
	return settings
}

func (s *Kube) locate(dir, address string) string {
	return absoluteAddress(dir, s.Connection.locate(dir, address))
}

func (s *Kube) unverified(address string) string {
	if source, err := kube.New(address, s.Source()); err == nil && s.TLSSettings == nil && source.SkipsVerification() {
		return "address"
	}
	return s.Connection.unverified(address)
}

func (s *Kube) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.VIPs = p.VIPs
	return kube.New(address, settings)
}

func (s *Kube) reading() any {
	defaults := Kube{
		UnknownFields: cmp.Or(s.UnknownFields, "warn"), DomainSuffix: cmp.Or(s.DomainSuffix, "cluster.local"),
		Namespaces: s.Namespaces, Kinds: s.Kinds, LabelSelector: s.LabelSelector, Revision: s.Revision, Services: s.Services,
	}
	if services := s.Source().Services; services != nil {
		defaults.Services = new(*s.Services)
		assign(defaults.Services, services.WithDefaults())
	}
	if s.Derive != nil {
		defaults.Derive = new(reading(*s.Derive, nil))
	}
	return reading(*s, defaults)
}
