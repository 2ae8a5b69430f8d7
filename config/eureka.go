package config

import (
	"tributary/sources"
	"tributary/sources/eureka"
)

// Eureka has the settings of sources of a Eureka. What is zero has the default of package eureka.
type Eureka struct {
	Secured
	// File with user:password, read anew each time it is used. Default: what stands in the address.
	CredentialsFile string `json:"credentialsFile,omitempty" reading:"-"`

	// Names of the applications to read, * for any characters. Default: all.
	Apps []string `json:"apps,omitempty" reading:"set"`
	// Names of applications to leave out, * for any characters.
	Skip []string `json:"skip,omitempty" reading:"set"`

	// How often all instances are read. Default: 5s.
	Interval Duration `json:"interval,omitempty" reading:"-"`
	// When to return to the first servers of the address, after another server was followed. Default: 10m.
	Resync Duration `json:"resync,omitempty" reading:"-"`
	// How long unlisted instances stay while nothing proves that they have gone, as after a restart of the server. Default: 6m.
	Hold Duration `json:"hold,omitempty" reading:"-"`
	// How long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty" reading:"-"`

	// Host of a service, with {vip} and {app}. Default: {vip}.eureka.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// The value any lets registrants choose hosts of Kubernetes clusters (NAME.NAMESPACE.svc…), where hostTemplate does not end in a domain.
	// Default: such a service is left out.
	Hosts string `json:"hosts,omitempty"`
	// Namespace of the objects made. Default: eureka.
	Namespace string `json:"namespace,omitempty"`
	// What instances are called by: ip or hostname. Default: ip.
	AddressFrom string `json:"addressFrom,omitempty"`
	// Statuses of instances that are served: UP, STARTING, OUT_OF_SERVICE, DOWN, UNKNOWN. Default: UP.
	Statuses []string `json:"statuses,omitempty" reading:"set"`
	// Key of the metadata that names the protocol. Default: protocol.
	ProtocolMeta string `json:"protocolMeta,omitempty"`
	// Protocol where nothing is said; that of secure ports is https. Default: http.
	DefaultProtocol string `json:"defaultProtocol,omitempty"`
	// Port on which clients find every service. Default: derived.
	ServicePort int64 `json:"servicePort,omitempty"`
	// The same of secure ports. Default: derived.
	SecureServicePort int64 `json:"secureServicePort,omitempty"`
	// Key of the metadata with the port on which clients find the service. Default: service-port.
	ServicePortMeta string `json:"servicePortMeta,omitempty"`
	// Keys of the metadata that become labels. Default: version.
	LabelMeta []string `json:"labelMeta,omitempty"`
	// Region of zones where instances do not say it. Default: none.
	Region string `json:"region,omitempty"`
	// Which services get a virtual address: tcp for those whose protocol has no host in it, all, or none. Default: tcp.
	VIPs string `json:"vips,omitempty"`
}

// Source returns the settings as package eureka takes them.
func (s *Eureka) Source() (made eureka.Settings) {
	assign(&made, *s)
	assign(&made.Mapping, *s)
	made.TLS = s.tls()
	return made
}

func (s *Eureka) locate(dir, address string) string {
	fileUnder(dir, &s.CredentialsFile)
	return s.Secured.locate(dir, address)
}

func (s *Eureka) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return eureka.New(address, settings)
}

func (s *Eureka) reading() any { return reading(*s, s.Source().Mapping.WithDefaults()) }

func (*Eureka) onlyHosts() bool { return true }
