package config

import (
	"time"

	"tributary/sources/nacos"
	"tributary/sources/nacos/mapping"
)

// Nacos has the settings of sources of Nacos. What is zero has the default of package nacos.
type Nacos struct {
	TLSSettings *TLSSettings `json:"tlsSettings,omitempty" jsonschema:"TLS of the connection to Nacos, as in Istio."`

	Groups   []string `json:"groups,omitempty" jsonschema:"Groups of Nacos to read. Default: that of the address, else DEFAULT_GROUP."`
	Services []string `json:"services,omitempty" jsonschema:"Names of the services to read, * for any characters. Default: all."`
	Skip     []string `json:"skip,omitempty" jsonschema:"Names of services to leave out, * for any characters. Those of Dubbo always are."`

	Interval  Duration `json:"interval,omitempty" jsonschema:"How often the names of services are looked at; changes of instances come by themselves. Default: 2s."`
	Delay     Duration `json:"delay,omitempty" jsonschema:"How long changes are collected after some were published; at most 10s. Default: 1s."`
	Resync    Duration `json:"resync,omitempty" jsonschema:"How often everything is read once more and compared. Default: 10m."`
	Hold      Duration `json:"hold,omitempty" jsonschema:"How long instances stay that are not listed after Nacos could not be reached, or after a start. Default: 2m."`
	KeepEmpty Duration `json:"keepEmpty,omitempty" jsonschema:"How long a service without instances stays, without endpoints. Default: 24h."`

	HostTemplate    string   `json:"hostTemplate,omitempty" jsonschema:"Host of a service, with {service}, {group}, {namespace} and {cluster}. Default: {service}.{group}.{namespace}.nacos."`
	Namespace       string   `json:"namespace,omitempty" jsonschema:"Namespace of the objects made. Default: nacos."`
	ProtocolMeta    string   `json:"protocolMeta,omitempty" jsonschema:"Key of the metadata that names the protocol. Default: protocol."`
	DefaultProtocol string   `json:"defaultProtocol,omitempty" jsonschema:"Protocol where nothing is said. Default: http for Spring Cloud, else tcp."`
	ServicePort     int64    `json:"servicePort,omitempty" jsonschema:"Port on which clients find every service. Default: derived."`
	ServicePortMeta string   `json:"servicePortMeta,omitempty" jsonschema:"Key of the metadata with the port on which clients find the service. Default: service-port."`
	LabelMeta       []string `json:"labelMeta,omitempty" jsonschema:"Keys of the metadata that become labels. Default: version."`
	VIPs            string   `json:"vips,omitempty" jsonschema:"Which services get a virtual address: tcp for those whose protocol has no host in it, all, or none. Default: tcp."`
}

// Source returns the settings as package nacos takes them.
func (s *Nacos) Source() nacos.Settings {
	return nacos.Settings{
		Groups: s.Groups, Services: s.Services, Skip: s.Skip,
		Interval: time.Duration(s.Interval), Delay: time.Duration(s.Delay), Resync: time.Duration(s.Resync), Hold: time.Duration(s.Hold),
		KeepEmpty: time.Duration(s.KeepEmpty),
		TLS:       (&Connection{TLSSettings: s.TLSSettings}).tls(),
		Mapping: mapping.Options{
			HostTemplate: s.HostTemplate, Namespace: s.Namespace, ProtocolMeta: s.ProtocolMeta, DefaultProtocol: s.DefaultProtocol,
			ServicePort: int(s.ServicePort), ServicePortMeta: s.ServicePortMeta, LabelMeta: s.LabelMeta, VIPs: s.VIPs,
		},
	}
}

func (s *Nacos) locate(dir, address string) string {
	return (&Connection{TLSSettings: s.TLSSettings}).locate(dir, address)
}

func (s *Nacos) check(address string) error {
	_, err := nacos.New(address, s.Source())
	return err
}

func (s *Nacos) where(address string) where { return where{Address: address} }

func (s *Nacos) reading() any {
	made := *s
	made.TLSSettings = nil
	made.Groups, made.Services, made.Skip = sorted(s.Groups), sorted(s.Services), sorted(s.Skip)
	o := s.Source().Mapping.WithDefaults()
	made.HostTemplate, made.Namespace, made.VIPs = o.HostTemplate, o.Namespace, o.VIPs
	made.ProtocolMeta, made.DefaultProtocol, made.ServicePortMeta, made.LabelMeta = o.ProtocolMeta, o.DefaultProtocol, o.ServicePortMeta, o.LabelMeta
	made.Interval, made.Delay, made.Resync, made.Hold, made.KeepEmpty = 0, 0, 0, 0, 0
	return made
}
