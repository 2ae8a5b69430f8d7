package envoy

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ complaints *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer, c *Catalog) metrics {
	m := metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "tributary", Subsystem: "envoy", Name: "complaints_total", Help: "Rejections of Envoys that were looked into, by how that ended.",
	}, []string{"end"})}
	for _, end := range []string{endedQuarantined, endedContradicted, endedMachine, endedUnheard, endedUnexplained, endedLimit, endedAgain} {
		m.complaints.WithLabelValues(end)
	}
	quarantined := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tributary", Subsystem: "envoy", Name: "quarantined_objects", Help: "Objects in whose place Envoys are served what they were before, since they are rejected.",
	}, func() float64 { return float64(len(c.Quarantined())) })
	if r != nil {
		r.MustRegister(m.complaints, quarantined)
	}
	return m
}
