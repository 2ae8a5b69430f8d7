package sources

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Counter counts events of a source, over all of its runs.
type Counter struct {
	Name, Help string
	Falls      bool // a gauge: its value can fall

	desc  *prometheus.Desc
	value atomic.Int64
}

// Value returns the present count.
func (c *Counter) Value() int64 { return c.value.Load() }

// Add adds n to the counter.
func (c *Counter) Add(n int64) { c.value.Add(n) }

// CounterSet collects the counters of one source for Prometheus.
type CounterSet struct{ counters []*Counter }

// NewCounters makes a set of counters, and puts a prefix before their names.
func NewCounters(prefix string, counters ...*Counter) *CounterSet {
	for _, c := range counters {
		c.desc = prometheus.NewDesc(prefix+c.Name, c.Help, nil, nil)
	}
	return &CounterSet{counters}
}

// Register registers the counters until stop is called. Without a registerer it does nothing. The registerer adds the
// label that names the source.
func (s *CounterSet) Register(registerer prometheus.Registerer) (stop func(), err error) {
	if registerer == nil {
		return func() {}, nil
	}
	if err := registerer.Register(s); err != nil {
		return nil, err
	}
	return func() { registerer.Unregister(s) }, nil
}

// Describe implements prometheus.Collector.
func (s *CounterSet) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.counters {
		ch <- c.desc
	}
}

// Collect implements prometheus.Collector.
func (s *CounterSet) Collect(ch chan<- prometheus.Metric) {
	for _, counter := range s.counters {
		kind := prometheus.CounterValue
		if counter.Falls {
			kind = prometheus.GaugeValue
		}
		ch <- prometheus.MustNewConstMetric(counter.desc, kind, float64(counter.value.Load()))
	}
}
