package config

import (
	"cmp"
	"time"

	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/dubbo"
	"tributary/sources/dubbo/mapping"
)

// DubboMapping has the settings of the objects made of Dubbo's services. Zero values stand for the defaults of package
// dubbo.
type DubboMapping struct {
	// Host of a service, with {interface}, {group} and {version}. Default: {interface}-{group}-{version}.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// The value any lets registrants choose hosts of Kubernetes clusters (NAME.NAMESPACE.svc…), where hostTemplate does
	// not end in a domain. Default: such a service is left out.
	Hosts string `json:"hosts,omitempty"`
	// Namespace of the objects made. Default: dubbo.
	Namespace string `json:"namespace,omitempty"`
	// Port on which clients find services, by protocol. Default: dubbo 20880, tri 50051, rest 8080 and others.
	ServicePorts map[string]int `json:"servicePorts,omitempty"`
	// Parameters of providers that become labels of endpoints.
	LabelParams []string `json:"labelParams,omitempty"`
	// Services that get a virtual address: tcp for those with a port whose protocol has no host in it, all, or none.
	// Default: tcp.
	VIPs string `json:"vips,omitempty"`
	// Subsets of each service's DestinationRule: version or group. It makes sense where hostTemplate leaves that out.
	// Default: no DestinationRule.
	Subsets string `json:"subsets,omitempty"`
	// For how long a new endpoint has less than its share, which Envoy sees to; at most 24h. Default: not at all.
	WarmUp Duration `json:"warmUp,omitempty"`
}

func (s *DubboMapping) options() (options mapping.Options) {
	assign(&options, *s)
	return options
}

// DubboLevels selects the registrations to read. Zero values stand for the defaults of package dubbo.
type DubboLevels struct {
	// Which registrations to read: interface, instance (applications, since Dubbo 3), or all. Default: all.
	RegisterMode string `json:"registerMode,omitempty"`
	// Names of the interfaces to read, at whichever level they are registered, * for any characters. Default: all.
	Interfaces []string `json:"interfaces,omitempty" reading:"set"`
	// Names of interfaces to leave out, at whichever level they are registered, * for any characters.
	SkipInterfaces []string `json:"skipInterfaces,omitempty" reading:"set"`
	// Names of the applications to read at application level, * for any characters. Default: all.
	Applications []string `json:"applications,omitempty" reading:"set"`
	// Names of applications to leave out at application level, * for any characters.
	SkipApplications []string `json:"skipApplications,omitempty" reading:"set"`
	// Whether providers that keep their metadata themselves, as Dubbo does by default, are asked for it. Default: true.
	AskProviders *bool `json:"askProviders,omitempty"`
}

// defaults returns the levels with defaults filled in. AskProviders is nil for its default, true.
func (s DubboLevels) defaults() DubboLevels {
	s.RegisterMode = cmp.Or(s.RegisterMode, "all")
	if s.AskProviders != nil && *s.AskProviders {
		s.AskProviders = nil
	}
	return s
}

// Dubbo has the settings of sources of Dubbo's registries. Zero values stand for the defaults of package dubbo.
type Dubbo struct {
	Secured
	DubboLevels

	// How long changes are collected after some were published; at most 10s. Default: 1s.
	Delay Duration `json:"delay,omitempty" reading:"-"`
	// How often everything is read once more and compared. Default: 10m.
	Resync Duration `json:"resync,omitempty" reading:"-"`
	// How long providers stay that are not listed after the registry could not be reached, or after a start. Default: 2m.
	Hold Duration `json:"hold,omitempty" reading:"-"`
	// How long a service without providers stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty" reading:"-"`
	// The same for an interface that was removed from the registry. Default: 30s.
	Grace Duration `json:"grace,omitempty" reading:"-"`

	DubboMapping

	// Sidecars for the applications that call services, made of the consumers that register. Default: none.
	Sidecars *DubboSidecars `json:"sidecars,omitempty"`
}

// DubboSidecars has the settings of Sidecars made of registered consumers. Zero values stand for the defaults of
// package dubbo.
type DubboSidecars struct {
	// Namespace of the workloads that call. Default: default.
	Namespace string `json:"namespace,omitempty"`
	// Label of these workloads that has the name of their application. Default: app.
	Label string `json:"label,omitempty"`
	// Further hosts that they see, as namespace/host. Default: ./* and istio-system/*.
	Hosts []string `json:"hosts,omitempty"`
	// How long a host stays that the application does not call any more. Default: 10m.
	Grace Duration `json:"grace,omitempty" reading:"-"`
}

// Source returns the settings as package dubbo takes them.
func (s *Dubbo) Source() (settings dubbo.Settings) {
	assign(&settings, *s)
	settings.TLS, settings.Mapping = s.tls(), s.options()
	if s.Sidecars != nil {
		settings.Mapping.Sidecars = new(mapping.Sidecars)
		assign(settings.Mapping.Sidecars, *s.Sidecars)
		settings.SidecarGrace = time.Duration(s.Sidecars.Grace)
	}
	return settings
}

func (s *Dubbo) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return dubbo.New(address, settings)
}

func (s *Dubbo) doubts() []string { return dubbo.Doubts(s.options()) }

func (s *Dubbo) reading() any {
	values, defaults := reading(*s, s.defaults()), s.Source().Mapping.WithDefaults()
	assign(&values, defaults)
	if defaults.Sidecars != nil {
		values.Sidecars = new(reading(DubboSidecars{}, *defaults.Sidecars))
	}
	return values
}

// DubboConsul has the settings of sources of Dubbo's services in a Consul. Zero values stand for the defaults of
// package dubbo.
type DubboConsul struct {
	ConsulReading

	DubboLevels

	// How long changes are collected after some were published; at most 10s. Default: 1s.
	Delay Duration `json:"delay,omitempty" reading:"-"`
	// How long a service without providers stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty" reading:"-"`

	DubboMapping
}

// Source returns the settings as packages consul and dubbo take them.
func (s *DubboConsul) Source() (_ consul.Settings, settings dubbo.Settings) {
	assign(&settings, s.DubboLevels)
	settings.Delay, settings.KeepEmpty, settings.Mapping = time.Duration(s.Delay), time.Duration(s.KeepEmpty), s.options()
	return s.source(), settings
}

func (s *DubboConsul) open(address string, p Parts) (sources.Source, error) {
	reading, settings := s.Source()
	reading.Registerer, settings.Registerer, settings.VIPs = p.Metrics, p.Metrics, p.VIPs
	return dubbo.NewConsul(address, reading, settings)
}

func (s *DubboConsul) doubts() []string {
	return append(dubbo.Doubts(s.options()), s.ConsulReading.doubts()...)
}

func (s *DubboConsul) reading() any {
	values := reading(*s, s.defaults())
	assign(&values, s.options().WithDefaults())
	return values
}

func (s *DubboMapping) onlyHosts() bool { return s.Subsets == "" }
