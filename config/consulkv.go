package config

import (
	"tributary/sources"
	"tributary/sources/consulkv"
)

// ConsulKV has the settings of consul-kv sources. What is zero has the default of package consulkv.
type ConsulKV struct {
	Connection
	Written
	Documents
	// How long a blocking query waits for news. Default: 5m.
	Wait Duration `json:"wait,omitempty"`
	// How long what is missing stays after Consul lost its data, from the first key on that is written then. Default: 5m.
	ResetHold Duration `json:"resetHold,omitempty"`
}

// Source returns the settings as package consulkv takes them.
func (s *ConsulKV) Source() (made consulkv.Settings) {
	assign(&made, *s)
	made.TLS = s.tls()
	return made
}

func (s *ConsulKV) doubts() []string { return s.Source().Doubts() }

func (s *ConsulKV) open(address string, p Parts) (sources.Source, error) {
	settings := s.Source()
	settings.Registerer = p.Metrics
	return consulkv.New(address, settings)
}
