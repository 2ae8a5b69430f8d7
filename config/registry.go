package config

// PolledRegistry has the settings of registries that are polled over HTTP. Zero values stand for the defaults.
type PolledRegistry struct {
	Secured
	// File with user:password, read for each request. Default: the credentials in the address.
	CredentialsFile string `json:"credentialsFile,omitempty" reading:"-"`

	// How often all instances are read. Default: 5s.
	Interval Duration `json:"interval,omitempty" reading:"-"`
	// How long unlisted instances stay without proof that they have gone, as after a restart of the server. Default: 6m.
	Hold Duration `json:"hold,omitempty" reading:"-"`
	// When to return to the first servers of the address, after another server was followed. Default: 10m.
	Resync Duration `json:"resync,omitempty" reading:"-"`

	RegistryHosts
}

func (s *PolledRegistry) locate(dir, address string) string {
	absoluteFile(dir, &s.CredentialsFile)
	return s.Secured.locate(dir, address)
}

// RegistryHosts has the settings of registries that name services by hosts. Zero values stand for the defaults.
type RegistryHosts struct {
	// How long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty Duration `json:"keepEmpty,omitempty" reading:"-"`

	// The value any lets registrants choose hosts of Kubernetes clusters (NAME.NAMESPACE.svc…), where hostTemplate does
	// not end in a domain. Default: such a service is left out.
	Hosts string `json:"hosts,omitempty"`
	// Key of the metadata that names the protocol. Default: protocol.
	ProtocolMeta string `json:"protocolMeta,omitempty"`
	// Port on which clients find every service. Default: derived.
	ServicePort int64 `json:"servicePort,omitempty"`
	// Key of the metadata with the port on which clients find the service. Default: service-port.
	ServicePortMeta string `json:"servicePortMeta,omitempty"`
	// Keys of the metadata that become labels. Default: version.
	LabelMeta []string `json:"labelMeta,omitempty"`
	// Services that get a virtual address: tcp for those with a protocol without hosts, all, or none. Default: tcp.
	VIPs string `json:"vips,omitempty"`
}

func (*RegistryHosts) onlyHosts() bool { return true }
