package xds

import "github.com/prometheus/client_golang/prometheus"

// newHealed makes the counter of what the full compare found to be wrong. It goes on from one run to the next.
func newHealed() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tributary_xds_source_healed_total",
		Help: "Resources that the full compare found to be different from what the server had told.",
	})
}

// collect has the counter collected until stop is called. The registerer adds the label that names the source.
func (s *Source) collect() (stop func(), err error) {
	r := s.settings.Registerer
	if r == nil {
		return func() {}, nil
	}
	if err := r.Register(s.healed); err != nil {
		return nil, err
	}
	return func() { r.Unregister(s.healed) }, nil
}
