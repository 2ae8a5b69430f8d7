package consul

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/sources/consul/dial"
)

// counters count what the source does. They go on from one run to the next.
type counters struct {
	names, reads, notices, confirmations, denied, limited, healed atomic.Int64
	watches                                                       atomic.Int64 // now
	vitals                                                        dial.Vitals
}

var (
	readsDesc         = newDesc("reads_total", "Reads of the instances of a service, by all means.")
	namesDesc         = newDesc("name_reads_total", "Reads of the names of services.")
	noticesDesc       = newDesc("notice_reads_total", "Queries that tell which services without a watch have to be read.")
	confirmationsDesc = newDesc("confirmations_total", "Answers that were not believed before a second, certain one.")
	deniedDesc        = newDesc("denied_reads_total", "Reads that Consul refused, or answered with less than there is.")
	limitedDesc       = newDesc("rate_limited_total", "Reads that Consul refused because there were too many.")
	healedDesc        = newDesc("healed_total", "Services that the full compare found to be different from what the watch had told.")
	watchesDesc       = newDesc("watches", "Services that are watched by a query that waits.")
)

func newDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("tributary_consul_"+name, help, nil, nil)
}

// register has the counters collected until stop is called. The registerer adds the label that names the source.
func (c *counters) register(r prometheus.Registerer) (stop func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	if err := r.Register(c); err != nil {
		return nil, err
	}
	return func() { r.Unregister(c) }, nil
}

// Describe implements prometheus.Collector.
func (c *counters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readsDesc, namesDesc, noticesDesc, confirmationsDesc, deniedDesc, limitedDesc, healedDesc, watchesDesc} {
		ch <- d
	}
	c.vitals.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *counters) Collect(ch chan<- prometheus.Metric) {
	for d, v := range map[*prometheus.Desc]*atomic.Int64{
		readsDesc: &c.reads, namesDesc: &c.names, noticesDesc: &c.notices, confirmationsDesc: &c.confirmations, deniedDesc: &c.denied,
		limitedDesc: &c.limited, healedDesc: &c.healed,
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()))
	}
	c.vitals.Collect(ch)
	ch <- prometheus.MustNewConstMetric(watchesDesc, prometheus.GaugeValue, float64(c.watches.Load()))
}
