package config

import (
	"time"

	"tributary/sources"
	"tributary/sources/nacos"
	"tributary/sources/nacos/mapping"
	"tributary/sources/registry"
)

// Nacos has the settings of sources of Nacos. What is zero has the default of package nacos.
type Nacos struct {
	// TLS of the connection to Nacos, as in Istio.
	TLSSettings *TLSSettings `json:"tlsSettings,omitempty"`

	// Groups of Nacos to read. Default: that of the address, else DEFAULT_GROUP.
	Groups []string `json:"groups,omitempty"`
	// Names of the services to read, * for any characters. Default: all.
	Services []string `json:"services,omitempty"`
	// Names of services to leave out, * for any characters. Those of Dubbo always are.
	Skip []string `json:"skip,omitempty"`

	// How often the names of services are looked at; changes of instances come by themselves. Default: 2s.
	Interval Duration `json:"interval,omitempty"`
	// How long changes are collected after some were published; at most 10s. Default: 1s.
	Delay Duration `json:"delay,omitempty"`
	// How often everything is read once more and compared. Default: 10m.
	Resync Duration `json:"resync,omitempty"`
	// How long instances stay that are not listed after Nacos could not be reached, or after a start. Default: 2m.
	Hold Duration `json:"hold,omitempty"`
	// How long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty"`

	// Host of a service, with {service}, {group}, {namespace} and {cluster}. Default: {service}.{group}.{namespace}.nacos.
	HostTemplate string `json:"hostTemplate,omitempty"`
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
func (s *Nacos) Source() nacos.Settings {
	return nacos.Settings{
		Groups: s.Groups, Services: s.Services, Skip: s.Skip,
		Interval: time.Duration(s.Interval), Delay: time.Duration(s.Delay), Resync: time.Duration(s.Resync), Hold: time.Duration(s.Hold),
		KeepEmpty: time.Duration(s.KeepEmpty),
		TLS:       (&Connection{TLSSettings: s.TLSSettings}).tls(),
		Mapping: mapping.Options{MappingOptions: registry.MappingOptions{
			HostTemplate: s.HostTemplate, Namespace: s.Namespace, ProtocolMeta: s.ProtocolMeta, DefaultProtocol: s.DefaultProtocol,
			ServicePort: int(s.ServicePort), ServicePortMeta: s.ServicePortMeta, LabelMeta: s.LabelMeta, VIPs: s.VIPs,
		}},
	}
}

func (s *Nacos) locate(dir, address string) string {
	return (&Connection{TLSSettings: s.TLSSettings}).locate(dir, address)
}

func (s *Nacos) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return nacos.New(address, settings)
}

func (s *Nacos) where(address string) where { return where{Address: address} }

func (s *Nacos) reading() any {
	made := *s
	made.TLSSettings = nil
	made.Groups, made.Services, made.Skip = sorted(s.Groups), sorted(s.Services), sorted(s.Skip)
	o := s.Source().Mapping.WithDefaults()
	made.HostTemplate, made.Namespace, made.VIPs = o.HostTemplate, o.Namespace, o.VIPs
	made.ProtocolMeta, made.DefaultProtocol, made.ServicePortMeta, made.LabelMeta = o.ProtocolMeta, o.DefaultProtocol, o.ServicePortMeta,
		o.LabelMeta
	made.Interval, made.Delay, made.Resync, made.Hold, made.KeepEmpty = 0, 0, 0, 0, 0
	return made
}
