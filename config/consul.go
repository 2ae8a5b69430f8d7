package config

import (
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consul/dial"
	"tributary/sources/consulkv"
)

// ConsulReading has the settings of reading a Consul. Zero values stand for the defaults of package consul.
type ConsulReading struct {
	Connection

	// Datacenters to read, by name. Default: that of the agent.
	Datacenters []string `json:"datacenters,omitempty" reading:"set"`
	// Namespaces to read, of every partition (Enterprise only). Default: that of the agent or token.
	Namespaces []string `json:"namespaces,omitempty" reading:"set"`
	// Admin partitions to read (Enterprise only). Default: that of the agent.
	Partitions []string `json:"partitions,omitempty" reading:"set"`
	// Cluster peers to read exported services of, too.
	Peers []string `json:"peers,omitempty" reading:"set"`

	// Filter expression for Consul's catalog of services, such as ServiceMeta.mesh == yes.
	Filter string `json:"filter,omitempty"`
	// Filter expression for Consul's instances, such as Node.Meta.pool == blue.
	HealthFilter string `json:"healthFilter,omitempty"`

	// Whether any server of Consul may answer, which spares the leader. Default: true.
	Stale *bool `json:"stale,omitempty" reading:"-"`
	// How long ago the server that answers may have heard of its leader; beyond, the leader is asked. Default: 10s.
	MaxStale Duration `json:"maxStale,omitempty" reading:"-"`
	// Whether the leader makes sure of each answer, which is expensive. Default: false.
	RequireConsistent bool `json:"requireConsistent,omitempty" reading:"-"`
	// How long a blocking query waits for news. Default: 5m.
	Wait Duration `json:"wait,omitempty" reading:"-"`
	// How many queries may wait at the same time; services beyond that are read in turn. Default: 150 over http, no limit
	// over https.
	MaxConcurrentWatches int64 `json:"maxConcurrentWatches,omitempty" reading:"-"`
	// How many reads may begin in a second; those that follow a change are not counted. Default: 50.
	RampRate int64 `json:"rampRate,omitempty" reading:"-"`
	// How often everything is read once more and compared. Default: 10m.
	Resync Duration `json:"resync,omitempty" reading:"-"`
	// How long everything stays after Consul lost its data, until its agents have told it again. Default: 5m.
	ResetHold Duration `json:"resetHold,omitempty" reading:"-"`
}

// source returns the settings as package consul takes them.
func (s *ConsulReading) source() (settings consul.Settings) {
	assign(&settings, *s)
	settings.TLS = s.tls()
	return settings
}

func (s *ConsulReading) doubts() []string {
	return dial.Settings{TokenFile: s.TokenFile, TLS: s.tls()}.Doubts()
}

// Consul has the settings of consul sources. Zero values stand for the defaults of package consul.
type Consul struct {
	ConsulReading

	// Names of the services to read, * for any characters. Default: all.
	Services []string `json:"services,omitempty" reading:"set"`
	// Names of services to leave out, * for any characters. Consul itself, sidecars and gateways always are.
	Skip []string `json:"skip,omitempty" reading:"set"`
	// Tags that an instance must have, all of them.
	Tags []string `json:"tags,omitempty" reading:"set"`

	// How long a service without instances stays, without endpoints. Default: 30s.
	Grace Duration `json:"grace,omitempty" reading:"-"`

	// Host of a service, with {service}, {datacenter}, {namespace}, {partition} and {peer}. Default:
	// {service}.service.consul.
	HostTemplate string `json:"hostTemplate,omitempty"`
	// Further hosts of a service: datacenter for one of each datacenter, such as reviews.service.dc1.consul, or none.
	// Default: datacenter.
	Aliases string `json:"aliases,omitempty"`
	// Namespace of the objects made. Default: consul.
	Namespace string `json:"namespace,omitempty"`
	// Key of the meta of a service that names its protocol. Default: protocol.
	ProtocolMeta string `json:"protocolMeta,omitempty"`
	// Protocol of ports without one. Default: tcp.
	DefaultProtocol string `json:"defaultProtocol,omitempty"`
	// Port on which clients find every service. Default: derived from the instances, and then kept.
	ServicePort int64 `json:"servicePort,omitempty"`
	// Key of the meta of a service that names that port. Default: service-port.
	ServicePortMeta string `json:"servicePortMeta,omitempty"`
	// Separator of key and value in tags that become labels. Default: =, | and :.
	TagSeparators []string `json:"tagSeparators,omitempty"`
	// Tags without a separator that become labels with the value true.
	LabelTags []string `json:"labelTags,omitempty"`
	// Prefix of the key of each label made of tags and meta.
	LabelPrefix string `json:"labelPrefix,omitempty"`
	// Where the locality of an instance is looked for, in order: locality, meta (of the node), datacenter; or none.
	// Default: all three.
	LocalityFrom []string `json:"localityFrom,omitempty"`
	// Tagged address to use where there is one, such as wan.
	TaggedAddress string `json:"taggedAddress,omitempty"`
	// Statuses of instances that are served: passing, warning, critical, maintenance. Default: passing, warning.
	StrictChecks []string `json:"strictChecks,omitempty"`
	// Where endpoints are written: inline, or workloadEntries. Default: inline.
	Endpoints string `json:"endpoints,omitempty"`
	// Services that get a virtual address: tcp for those with a port whose protocol has no host in it, all, or none.
	// Default: tcp.
	VIPs string `json:"vips,omitempty"`
}

// Source returns the settings as package consul takes them.
func (s *Consul) Source() consul.Settings {
	settings := s.source()
	assign(&settings, *s)
	settings.Mapping.Tags = s.LabelTags
	return settings
}

func (s *Consul) reading() any {
	defaults := s.Source().Mapping.WithDefaults()
	defaults.Tags = s.Tags
	return reading(*s, defaults)
}

func (s *Consul) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.VIPs = p.Metrics, p.VIPs
	return consul.New(address, settings)
}

// ConsulKV has the settings of consul-kv sources. Zero values stand for the defaults of package consulkv.
type ConsulKV struct {
	Connection
	Written
	Documents
	// How long a blocking query waits for news. Default: 5m.
	Wait Duration `json:"wait,omitempty"`
	// How long missing services and instances stay after Consul lost its data, from the first registration afterwards.
	// Default: 5m.
	ResetHold Duration `json:"resetHold,omitempty"`
}

// Source returns the settings as package consulkv takes them.
func (s *ConsulKV) Source() (settings consulkv.Settings) {
	assign(&settings, *s)
	settings.TLS = s.tls()
	return settings
}

func (s *ConsulKV) doubts() []string { return s.Source().Doubts() }

func (s *ConsulKV) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer = p.Metrics
	return consulkv.New(address, settings)
}

func (*Consul) onlyHosts() bool { return true }
