package config

import (
	"tributary/sources"
	"tributary/sources/nacos"
)

// Nacos has the settings of sources of Nacos. What is zero has the default of package nacos.
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
	// How long instances stay that are not listed after Nacos could not be reached, or after a start. Default: 2m.
	Hold Duration `json:"hold,omitempty" reading:"-"`
	// How long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty" reading:"-"`

	// Host of a service, with {service}, {group}, {namespace} and {cluster}. Default: {service}.{group}.{namespace}.nacos.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// The value any lets registrants choose hosts of Kubernetes clusters (NAME.NAMESPACE.svc…), where hostTemplate does not end in a domain.
	// Default: such a service is left out.
	Hosts string `json:"hosts,omitempty"`
	// Namespace of the objects made. Default: nacos.
	Namespace string `json:"namespace,omitempty"`
	// Key of the metadata that names the protocol. Default: protocol.
	ProtocolMeta string `json:"protocolMeta,omitempty"`
	// Protocol where nothing is said. Default: http for Spring Cloud, else tcp.
	DefaultProtocol string `json:"defaultProtocol,omitempty"`
	// Port on which clients find every service. Default: derived.
	ServicePort int64 `json:"servicePort,omitempty"`
	// Key of the metadata with the port on which clients find the service. Default: service-port.
	ServicePortMeta string `json:"servicePortMeta,omitempty"`
	// Keys of the metadata that become labels. Default: version.
	LabelMeta []string `json:"labelMeta,omitempty"`
	// Which services get a virtual address: tcp for those whose protocol has no host in it, all, or none. Default: tcp.
	VIPs string `json:"vips,omitempty"`
}

// Source returns the settings as package nacos takes them.
func (s *Nacos) Source() (made nacos.Settings) {
	assign(&made, *s)
	assign(&made.Mapping, *s)
	made.TLS = s.tls()
	return made
}

func (s *Nacos) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return nacos.New(address, settings)
}

func (s *Nacos) reading() any { return reading(*s, s.Source().Mapping.WithDefaults()) }

func (*Nacos) onlyHosts() bool { return true }
