package config

import (
	"cmp"
	"time"

	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/dubbo"
	"tributary/sources/dubbo/mapping"
)

// DubboMapping says what becomes of Dubbo's services. What is zero has the default of package dubbo.
type DubboMapping struct {
	// Host of a service, with {interface}, {group} and {version}. Default: {interface}-{group}-{version}.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// Namespace of the objects made. Default: dubbo.
	Namespace string `json:"namespace,omitempty"`
	// Port on which clients find services, by protocol. Default: dubbo 20880, tri 50051, rest 8080 and others.
	ServicePorts map[string]int64 `json:"servicePorts,omitempty"`
	// Parameters of providers that become labels of endpoints.
	LabelParams []string `json:"labelParams,omitempty"`
	// Which services get a virtual address: tcp for those with a port whose protocol has no host in it, all, or none. Default: tcp.
	VIPs string `json:"vips,omitempty"`
	// What each service's DestinationRule has subsets of: version or group. It makes sense where hostTemplate leaves that out. Default: no
	// DestinationRule.
	Subsets string `json:"subsets,omitempty"`
	// For how long a new endpoint has less than its share, which Envoy sees to; at most 24h. Default: not at all.
	WarmUp Duration `json:"warmUp,omitempty"`
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

// DubboLevels says which registrations are read. What is zero has the default of package dubbo.
type DubboLevels struct {
	// Which registrations to read: interface, instance (applications, since Dubbo 3), or all. Default: all.
	RegisterMode string `json:"registerMode,omitempty"`
	// Names of the interfaces to read, at whichever level they are registered, * for any characters. Default: all.
	Interfaces []string `json:"interfaces,omitempty"`
	// Names of interfaces to leave out, at whichever level they are registered, * for any characters.
	SkipInterfaces []string `json:"skipInterfaces,omitempty"`
	// Names of the applications to read at application level, * for any characters. Default: all.
	Applications []string `json:"applications,omitempty"`
	// Names of applications to leave out at application level, * for any characters.
	SkipApplications []string `json:"skipApplications,omitempty"`
	// Whether providers that keep their metadata themselves, as Dubbo does by default, are asked for it. Default: true.
	AskProviders *bool `json:"askProviders,omitempty"`
}

func (s *DubboLevels) levels() dubbo.Settings {
	return dubbo.Settings{
		RegisterMode: s.RegisterMode, Interfaces: s.Interfaces, SkipInterfaces: s.SkipInterfaces,
		Applications: s.Applications, SkipApplications: s.SkipApplications, AskProviders: s.AskProviders,
	}
}

// identity is the same for settings that mean the same.
func (s *DubboLevels) identity() DubboLevels {
	made := DubboLevels{
		RegisterMode: cmp.Or(s.RegisterMode, "all"), AskProviders: s.AskProviders,
		Interfaces: sorted(s.Interfaces), SkipInterfaces: sorted(s.SkipInterfaces),
		Applications: sorted(s.Applications), SkipApplications: sorted(s.SkipApplications),
	}
	if made.AskProviders != nil && *made.AskProviders {
		made.AskProviders = nil // the default
	}
	return made
}

// Dubbo has the settings of sources of Dubbo's registries. What is zero has the default of package dubbo.
type Dubbo struct {
	// TLS of the connection to the registry, as in Istio.
	TLSSettings *TLSSettings `json:"tlsSettings,omitempty"`

	DubboLevels

	// How long changes are collected after some were published; at most 10s. Default: 1s.
	Delay Duration `json:"delay,omitempty"`
	// How often everything is read once more and compared. Default: 10m.
	Resync Duration `json:"resync,omitempty"`
	// How long providers stay that are not listed after the registry could not be reached, or after a start. Default: 2m.
	Hold Duration `json:"hold,omitempty"`
	// How long a service without providers stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty"`
	// The same for an interface that was removed from the registry. Default: 30s.
	Grace Duration `json:"grace,omitempty"`

	DubboMapping

	// Sidecars for the applications that call services, made of the consumers that register. Default: none.
	Sidecars *DubboSidecars `json:"sidecars,omitempty"`
}

// DubboSidecars says how Sidecars are made of what applications consume. What is zero has the default of package dubbo.
type DubboSidecars struct {
	// Namespace of the workloads that call. Default: default.
	Namespace string `json:"namespace,omitempty"`
	// Label of these workloads that has the name of their application. Default: app.
	Label string `json:"label,omitempty"`
	// What else they see, as namespace/host. Default: ./* and istio-system/*.
	Hosts []string `json:"hosts,omitempty"`
	// How long a host stays that the application does not call any more. Default: 10m.
	Grace Duration `json:"grace,omitempty"`
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
	made := s.levels()
	made.Delay, made.Resync, made.Hold = time.Duration(s.Delay), time.Duration(s.Resync), time.Duration(s.Hold)
	made.KeepEmpty, made.Grace = time.Duration(s.KeepEmpty), time.Duration(s.Grace)
	made.TLS = (&Connection{TLSSettings: s.TLSSettings}).tls()
	made.Mapping = s.options()
	return made
}

func (s *Dubbo) locate(dir, address string) string {
	return (&Connection{TLSSettings: s.TLSSettings}).locate(dir, address)
}

func (s *Dubbo) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return dubbo.New(address, settings)
}

func (s *Dubbo) doubts() []string { return dubbo.Doubts(s.options()) }

func (s *Dubbo) where(address string) where { return where{Address: address} }

func (s *Dubbo) reading() any {
	made := *s
	made.TLSSettings = nil
	made.DubboLevels = s.identity()
	made.complete()
	made.Delay, made.Resync, made.Hold, made.KeepEmpty, made.Grace = 0, 0, 0, 0, 0
	if s.Sidecars != nil {
		o := s.Source().Mapping.Sidecars.WithDefaults()
		made.Sidecars = &DubboSidecars{Namespace: o.Namespace, Label: o.Label, Hosts: o.Hosts}
	}
	return made
}

// DubboConsul has the settings of sources of Dubbo's services in a Consul. What is zero has the default of package dubbo.
type DubboConsul struct {
	ConsulReading

	DubboLevels

	// How long changes are collected after some were published; at most 10s. Default: 1s.
	Delay Duration `json:"delay,omitempty"`
	// How long a service without providers stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty"`

	DubboMapping
}

// Source returns the settings as packages consul and dubbo take them.
func (s *DubboConsul) Source() (consul.Settings, dubbo.Settings) {
	made := s.levels()
	made.Delay, made.KeepEmpty, made.Mapping = time.Duration(s.Delay), time.Duration(s.KeepEmpty), s.options()
	return s.source(), made
}

func (s *DubboConsul) open(address string, p Parts) (sources.Source, error) {
	reading, settings := s.Source()
	reading.Registerer, settings.Registerer, settings.VIPs = p.Metrics, p.Metrics, p.VIPs
	return dubbo.NewConsul(address, reading, settings)
}

func (s *DubboConsul) doubts() []string {
	return append(dubbo.Doubts(s.options()), s.ConsulReading.doubts()...)
}

func (s *DubboConsul) where(address string) where { return where{Address: address} }

func (s *DubboConsul) reading() any {
	made := *s
	made.ConsulReading, made.DubboLevels = s.selecting(), s.identity()
	made.Delay, made.KeepEmpty = 0, 0
	made.complete()
	return made
}
