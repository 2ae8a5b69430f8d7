package config

import (
	"tributary/sources"
	"tributary/sources/eureka"
)

// Eureka has the settings of sources of a Eureka. Zero values stand for the defaults of package eureka.
type Eureka struct {
	PolledRegistry

	// Names of the applications to read, * for any characters. Default: all.
	Apps []string `json:"apps,omitempty" reading:"set"`
	// Names of applications to leave out, * for any characters.
	Skip []string `json:"skip,omitempty" reading:"set"`

	// Host of a service, with {vip} and {app}. Default: {vip}.eureka.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// Namespace of the objects made. Default: eureka.
	Namespace string `json:"namespace,omitempty"`
	// Address of instances: ip or hostname. Default: ip.
	AddressFrom string `json:"addressFrom,omitempty"`
	// Statuses of instances that are served: UP, STARTING, OUT_OF_SERVICE, DOWN, UNKNOWN. Default: UP.
	Statuses []string `json:"statuses,omitempty" reading:"set"`
	// Protocol of plain ports of instances that name none; secure ports have https. Default: http.
	DefaultProtocol string `json:"defaultProtocol,omitempty"`
	// Port on which clients find the secure port of every service. Default: derived.
	SecureServicePort int64 `json:"secureServicePort,omitempty"`
	// Region of zones of instances that name none. Default: none.
	Region string `json:"region,omitempty"`
}

// Source returns the settings as package eureka takes them.
func (s *Eureka) Source() (settings eureka.Settings) {
	assign(&settings, *s)
	settings.TLS = s.tls()
	return settings
}

func (s *Eureka) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return eureka.New(address, settings)
}

func (s *Eureka) reading() any { return reading(*s, s.Source().Mapping.WithDefaults()) }
