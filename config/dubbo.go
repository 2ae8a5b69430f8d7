package config

import (
	"cmp"
	"time"

	"tributary/sources/dubbo"
	"tributary/sources/dubbo/mapping"
)

// DubboMapping says what becomes of Dubbo's services. What is zero has the default of package dubbo.
type DubboMapping struct {
	HostTemplate string           `json:"hostTemplate,omitempty" jsonschema:"Host of a service, with {interface}, {group} and {version}. Default: {interface}-{group}-{version}."`
	Namespace    string           `json:"namespace,omitempty" jsonschema:"Namespace of the objects made. Default: dubbo."`
	ServicePorts map[string]int64 `json:"servicePorts,omitempty" jsonschema:"Port on which clients find services, by protocol. Default: dubbo 20880, tri 50051, rest 8080 and others."`
	LabelParams  []string         `json:"labelParams,omitempty" jsonschema:"Parameters of providers that become labels of endpoints."`
	VIPs         string           `json:"vips,omitempty" jsonschema:"Which services get a virtual address: tcp for those with a port whose protocol has no host in it, all, or none. Default: tcp."`
	Subsets      string           `json:"subsets,omitempty" jsonschema:"What each service's DestinationRule has subsets of: version or group. It makes sense where hostTemplate leaves that out. Default: no DestinationRule."`
	WarmUp       Duration         `json:"warmUp,omitempty" jsonschema:"For how long a new endpoint has less than its share, which Envoy sees to; at most 24h. Default: not at all."`
}

func (s *DubboMapping) options() mapping.Options {
	ports := make(map[string]int, len(s.ServicePorts))
	for protocol, n := range s.ServicePorts {
		ports[protocol] = int(n)
	}
	return mapping.Options{
		HostTemplate: s.HostTemplate, Namespace: s.Namespace, ServicePorts: ports, LabelParams: s.LabelParams, VIPs: s.VIPs,
		Subsets: s.Subsets, WarmUp: time.Duration(s.WarmUp),
	}
}

// complete fills in the defaults.
func (s *DubboMapping) complete() {
	o := s.options().WithDefaults()
	s.HostTemplate, s.Namespace, s.VIPs = o.HostTemplate, o.Namespace, o.VIPs
}

// Dubbo has the settings of sources of Dubbo's registries. What is zero has the default of package dubbo.
type Dubbo struct {
	TLSSettings *TLSSettings `json:"tlsSettings,omitempty" jsonschema:"TLS of the connection to the registry, as in Istio."`

	RegisterMode     string   `json:"registerMode,omitempty" jsonschema:"Which registrations to read: interface, instance (applications, since Dubbo 3), or all. Default: all."`
	Interfaces       []string `json:"interfaces,omitempty" jsonschema:"Names of the interfaces to read at interface level, * for any characters. Default: all."`
	SkipInterfaces   []string `json:"skipInterfaces,omitempty" jsonschema:"Names of interfaces to leave out at interface level, * for any characters."`
	Applications     []string `json:"applications,omitempty" jsonschema:"Names of the applications to read at application level, * for any characters. Default: all."`
	SkipApplications []string `json:"skipApplications,omitempty" jsonschema:"Names of applications to leave out at application level, * for any characters."`
	AskProviders     *bool    `json:"askProviders,omitempty" jsonschema:"Whether providers that keep their metadata themselves, as Dubbo does by default, are asked for it. Default: true."`

	Delay     Duration `json:"delay,omitempty" jsonschema:"How long changes are collected after some were published; at most 10s. Default: 1s."`
	Resync    Duration `json:"resync,omitempty" jsonschema:"How often everything is read once more and compared. Default: 10m."`
	Hold      Duration `json:"hold,omitempty" jsonschema:"How long providers stay that are not listed after the registry could not be reached, or after a start. Default: 2m."`
	KeepEmpty Duration `json:"keepEmpty,omitempty" jsonschema:"How long a service without providers stays, without endpoints. Default: 24h."`
	Grace     Duration `json:"grace,omitempty" jsonschema:"The same for an interface that was removed from the registry. Default: 30s."`

	DubboMapping

	Sidecars *DubboSidecars `json:"sidecars,omitempty" jsonschema:"Sidecars for the applications that call services, made of the consumers that register. Default: none."`
}

// DubboSidecars says how Sidecars are made of what applications consume. What is zero has the default of package dubbo.
type DubboSidecars struct {
	Namespace string   `json:"namespace,omitempty" jsonschema:"Namespace of the workloads that call. Default: default."`
	Label     string   `json:"label,omitempty" jsonschema:"Label of these workloads that has the name of their application. Default: app."`
	Hosts     []string `json:"hosts,omitempty" jsonschema:"What they see besides, as namespace/host. Default: ./* and istio-system/*."`
	Grace     Duration `json:"grace,omitempty" jsonschema:"How long a host stays that the application does not call any more. Default: 10m."`
}

// Source returns the settings as package dubbo takes them.
func (s *Dubbo) Source() dubbo.Settings {
	made := s.settings()
	if s.Sidecars != nil {
		made.Mapping.Sidecars = &mapping.Sidecars{Namespace: s.Sidecars.Namespace, Label: s.Sidecars.Label, Hosts: s.Sidecars.Hosts}
		made.SidecarGrace = time.Duration(s.Sidecars.Grace)
	}
	return made
}

func (s *Dubbo) settings() dubbo.Settings {
	return dubbo.Settings{
		RegisterMode: s.RegisterMode, Interfaces: s.Interfaces, SkipInterfaces: s.SkipInterfaces,
		Applications: s.Applications, SkipApplications: s.SkipApplications, AskProviders: s.AskProviders,
		Delay: time.Duration(s.Delay), Resync: time.Duration(s.Resync), Hold: time.Duration(s.Hold),
		KeepEmpty: time.Duration(s.KeepEmpty), Grace: time.Duration(s.Grace),
		TLS:     (&Connection{TLSSettings: s.TLSSettings}).tls(),
		Mapping: s.options(),
	}
}

func (s *Dubbo) locate(dir, address string) string {
	return (&Connection{TLSSettings: s.TLSSettings}).locate(dir, address)
}

func (s *Dubbo) check(address string) error {
	_, err := dubbo.New(address, s.Source())
	return err
}

func (s *Dubbo) reading() any { return nil }

func (s *Dubbo) where(address string) where {
	made := *s
	made.TLSSettings = nil
	made.RegisterMode = cmp.Or(s.RegisterMode, "all")
	if made.AskProviders != nil && *made.AskProviders {
		made.AskProviders = nil // the default
	}
	made.Interfaces, made.SkipInterfaces = sorted(s.Interfaces), sorted(s.SkipInterfaces)
	made.Applications, made.SkipApplications = sorted(s.Applications), sorted(s.SkipApplications)
	made.complete()
	made.Delay, made.Resync, made.Hold, made.KeepEmpty, made.Grace = 0, 0, 0, 0, 0
	if s.Sidecars != nil {
		o := s.Source().Mapping.Sidecars.WithDefaults()
		made.Sidecars = &DubboSidecars{Namespace: o.Namespace, Label: o.Label, Hosts: o.Hosts}
	}
	return where{address, made}
}

// DubboConsul has the settings of sources of Dubbo's services in a Consul. What is zero has the default of package dubbo.
type DubboConsul struct {
	ConsulReading

	Interfaces     []string `json:"interfaces,omitempty" jsonschema:"Names of the interfaces to read, * for any characters. Default: all."`
	SkipInterfaces []string `json:"skipInterfaces,omitempty" jsonschema:"Names of interfaces to leave out, * for any characters."`
	KeepEmpty      Duration `json:"keepEmpty,omitempty" jsonschema:"How long a service without providers stays, without endpoints; at most 24h. Default: 24h."`

	DubboMapping
}

// Source returns the settings as package dubbo takes them.
func (s *DubboConsul) Source() dubbo.ConsulSettings {
	reading := s.source()
	reading.Services, reading.Skip = s.Interfaces, s.SkipInterfaces
	return dubbo.ConsulSettings{Reading: reading, KeepEmpty: time.Duration(s.KeepEmpty), Mapping: s.options()}
}

func (s *DubboConsul) check(address string) error {
	_, err := dubbo.NewConsul(address, s.Source())
	return err
}

func (s *DubboConsul) reading() any { return nil }

func (s *DubboConsul) where(address string) where {
	made := *s
	made.ConsulReading, made.KeepEmpty = s.selecting(), 0
	made.Interfaces, made.SkipInterfaces = sorted(s.Interfaces), sorted(s.SkipInterfaces)
	made.complete()
	return where{address, made}
}
