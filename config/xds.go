package config

import (
	"tributary/sources"
	"tributary/sources/xds"
)

// XDS has the settings of xds sources. Zero values stand for the defaults of package xds.
type XDS struct {
	Connection
	Written
	// Resources to request: SERVICE_REGISTRY as in Istio, kinds, or type URLs. Default: everything.
	SubscribedResources []string `json:"subscribedResources,omitempty" reading:"set"`
	// Variant of the protocol: delta, sotw, or auto, which tries delta first. Default: auto.
	Mode string `json:"mode,omitempty" reading:"-"`
	// Id that the source introduces itself by. Default: made of the host name and the namespace of the certificate or
	// token, such as sidecar~127.0.0.1~tributary-HOST.istio-system~istio-system.svc.cluster.local.
	NodeID string `json:"nodeID,omitempty"`
	// Metadata that the source adds to its node.
	NodeMetadata map[string]string `json:"nodeMetadata,omitempty"`
	// Excludes resources with the label istio.io/rev of another revision.
	Revision string `json:"revision,omitempty"`
	// Where the source runs, as region/zone/subzone.
	Locality string `json:"locality,omitempty" reading:"-"`
	// How long after a restart or a reconnect everything is read once more and compared, from 1s to 24h. Default: 1h.
	Resync Duration `json:"resync,omitempty" reading:"-"`
	// How large one response may be, in bytes. Default: 536870912.
	MaxMessageBytes int64 `json:"maxMessageBytes,omitempty" reading:"-"`
}

// Source returns the settings as package xds takes them.
func (s *XDS) Source() (settings xds.Settings) {
	assign(&settings, *s)
	settings.TLS = s.tls()
	return settings
}

func (s *XDS) reading() any { return reading(*s, nil) }

func (s *XDS) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer, settings.Hops = p.Metrics, p.Hops
	return xds.New(address, settings)
}
