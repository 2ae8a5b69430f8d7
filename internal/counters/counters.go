// Package counters has the counters of a source, which go on from one of its runs to the next.
package counters

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Counter is one of them.
type Counter struct {
	Name, Help string
	Falls      bool // it says how many there are now

	desc  *prometheus.Desc
	value atomic.Int64
}

// Value is what it has counted.
func (c *Counter) Value() int64 { return c.value.Load() }

// Add adds to it.
func (c *Counter) Add(n int64) { c.value.Add(n) }

// Set are the counters of one source. It is a prometheus.Collector.
type Set struct{ all []*Counter }

// New makes a set of counters, whose names get a prefix.
func New(prefix string, all ...*Counter) *Set {
	for _, c := range all {
		c.desc = prometheus.NewDesc(prefix+c.Name, c.Help, nil, nil)
	}
	return &Set{all}
}

// Register has the counters collected until stop is called; without a registerer they are not. The registerer adds the label that names the
// source.
func (s *Set) Register(r prometheus.Registerer) (stop func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	if err := r.Register(s); err != nil {
		return nil, err
	}
	return func() { r.Unregister(s) }, nil
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.all {
		ch <- c.desc
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.all {
		kind := prometheus.CounterValue
		if c.Falls {
			kind = prometheus.GaugeValue
		}
		ch <- prometheus.MustNewConstMetric(c.desc, kind, float64(c.value.Load()))
	}
}
