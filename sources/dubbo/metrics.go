package dubbo

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counters count what the source does. They go on from one run to the next.
type counters struct {
	told, healed, sessions, resolved, unresolved atomic.Int64
}

var (
	toldDesc       = newDesc("reads_total", "Parts of the registry that were read, at the start and whenever they changed.")
	healedDesc     = newDesc("healed_total", "Nodes that the slow compare found to be different from what the watches had told.")
	sessionsDesc   = newDesc("sessions_lost_total", "Sessions that ended, after which everything was read anew.")
	resolvedDesc   = newDesc("resolved_total", "Revisions of applications of which was found out what they serve.")
	unresolvedDesc = newDesc("unresolved_total", "Attempts at that which failed.")
)

func newDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("tributary_dubbo_"+name, help, nil, nil)
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
	for d := range c.all() {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *counters) Collect(ch chan<- prometheus.Metric) {
	for d, v := range c.all() {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()))
	}
}

func (c *counters) all() map[*prometheus.Desc]*atomic.Int64 {
	return map[*prometheus.Desc]*atomic.Int64{
		toldDesc: &c.told, healedDesc: &c.healed, sessionsDesc: &c.sessions, resolvedDesc: &c.resolved, unresolvedDesc: &c.unresolved,
	}
}
