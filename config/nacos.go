package config

import (
	"tributary/sources"
	"tributary/sources/nacos"
)

// Nacos has the settings of sources of Nacos. Zero values stand for the defaults of package nacos.
type Nacos struct {
	Secured

	// Groups of Nacos to read. Default: that of the address, else DEFAULT_GROUP.
	Groups []string `json:"groups,omitempty" reading:"set"`
	// Names of the services to read, * for any characters. Default: all.
	Services []string `json:"services,omitempty" reading:"set"`
	// Names of services to leave out, * for any characters. Those of Dubbo always are.
	Skip []string `json:"skip,omitempty" reading:"set"`

	// How often the names of services are looked at; changes of instances come by themselves. Default: 2s.
	Interval Duration `json:"interval,omitempty" reading:"-"`
	// How long changes are collected after some were published; at most 10s. Default: 1s.
	Delay Duration `json:"delay,omitempty" reading:"-"`
	// How often everything is read once more and compared. Default: 10m.
	Resync Duration `json:"resync,omitempty" reading:"-"`
	// How long unlisted instances stay after Nacos could not be reached, or after a start. Default: 2m.
	Hold Duration `json:"hold,omitempty" reading:"-"`

	// Host of a service, with {service}, {group}, {namespace} and {cluster}. Default: {service}.{group}.{namespace}.nacos.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// Namespace of the objects made. Default: nacos.
	Namespace string `json:"namespace,omitempty"`
	// Protocol of instances that name none. Default: http for Spring Cloud, else tcp.
	DefaultProtocol string `json:"defaultProtocol,omitempty"`

	RegistryHosts
}

// Source returns the settings as package nacos takes them.
func (s *Nacos) Source() (settings nacos.Settings) {
	assign(&settings, *s)
	settings.TLS = s.tls()
	return settings
}

func (s *Nacos) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return nacos.New(address, settings)
}

func (s *Nacos) reading() any { return reading(*s, s.Source().Mapping.WithDefaults()) }
