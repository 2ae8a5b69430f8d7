package consul

import (
	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/counters"
	"tributary/sources/consul/dial"
)

// metrics count what the source does. They go on from one run to the next.
type metrics struct {
	*counters.Set
	names, reads, notices, confirmations, denied, limited, healed counters.Counter
	watches                                                       counters.Counter // now
	vitals                                                        dial.Vitals
}

func newMetrics() *metrics {
	m := &metrics{
		reads:         counters.Counter{Name: "reads_total", Help: "Reads of the instances of a service, by all means."},
		names:         counters.Counter{Name: "name_reads_total", Help: "Reads of the names of services."},
		notices:       counters.Counter{Name: "notice_reads_total", Help: "Queries that tell which services without a watch have to be read."},
		confirmations: counters.Counter{Name: "confirmations_total", Help: "Answers that were not believed before a second, certain one."},
		denied:        counters.Counter{Name: "denied_reads_total", Help: "Reads that Consul refused, or answered with less than there is."},
		limited:       counters.Counter{Name: "rate_limited_total", Help: "Reads that Consul refused because there were too many."},
		healed: counters.Counter{Name: "healed_total", Help: "Services that the full compare found to be different from what the watch " +
			"had told."},
		watches: counters.Counter{Name: "watches", Help: "Services that are watched by a query that waits.", Falls: true},
	}
	m.Set = counters.New("tributary_consul_", &m.reads, &m.names, &m.notices, &m.confirmations, &m.denied, &m.limited, &m.healed, &m.watches)
	return m
}

// register has them collected until stop is called. The registerer adds the label that names the source.
func (m *metrics) register(r prometheus.Registerer) (stop func(), err error) {
	end, err := m.Register(r)
	if err != nil || r == nil {
		return end, err
	}
	if err := r.Register(&m.vitals); err != nil {
		end()
		return nil, err
	}
	return func() { end(); r.Unregister(&m.vitals) }, nil
}
