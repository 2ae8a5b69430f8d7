package xds

import "github.com/prometheus/client_golang/prometheus"

// metrics are labelled by the type of the collection, never by anything that a client can make up.
type metrics struct {
	streams   *prometheus.GaugeVec
	requests  *prometheus.CounterVec
	nacks     *prometheus.CounterVec
	responses *prometheus.CounterVec
	resources *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	delay     *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, namespace string) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: "xds", Name: name, Help: help},
			[]string{"type_url"})
	}
	m := &metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "xds", Name: "streams", Help: "Open xDS streams, by protocol variant.",
		}, []string{"variant"}),
		requests:  counter("requests_total", "Discovery requests received, acknowledgements included."),
		nacks:     counter("nacks_total", "Responses that clients rejected."),
		responses: counter("responses_total", "Discovery responses sent."),
		resources: counter("resources_sent_total", "Resources and removals sent in responses."),
		bytes:     counter("response_bytes_total", "Encoded size of the responses sent."),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "xds", Name: "refusals_total", Help: "Streams refused or ended because of a limit, by the limit.",
		}, []string{"reason"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "xds", Name: "propagation_seconds",
			Help:    "From when a source had what is new until a response with it was sent to a client that follows, or acknowledged by it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"type_url", "stage"}),
	}
	m.streams.WithLabelValues("sotw")
	m.streams.WithLabelValues("delta")
	if r != nil {
		r.MustRegister(m.streams, m.requests, m.nacks, m.responses, m.resources, m.bytes, m.refusals, m.delay)
	}
	return m
}

func (m *metrics) stream(delta bool, n float64) {
	variant := "sotw"
	if delta {
		variant = "delta"
	}
	m.streams.WithLabelValues(variant).Add(n)
}

// typeMetrics are the counters of one type. A subscription holds them, so that counting looks nothing up.
type typeMetrics struct {
	requests, nacks, responses, resources, bytes prometheus.Counter
	toSent, toAcknowledged                       prometheus.Observer
}

func (m *metrics) of(typeURL string) typeMetrics {
	return typeMetrics{
		requests:  m.requests.WithLabelValues(typeURL),
		nacks:     m.nacks.WithLabelValues(typeURL),
		responses: m.responses.WithLabelValues(typeURL),
		resources: m.resources.WithLabelValues(typeURL),
		bytes:     m.bytes.WithLabelValues(typeURL),

		toSent:         m.delay.WithLabelValues(typeURL, "sent"),
		toAcknowledged: m.delay.WithLabelValues(typeURL, "acknowledged"),
	}
}

func (m *typeMetrics) request(nack bool) {
	m.requests.Inc()
	if nack {
		m.nacks.Inc()
	}
}

func (m *typeMetrics) response(bytes, resources int) {
	m.responses.Inc()
	m.resources.Add(float64(resources))
	m.bytes.Add(float64(bytes))
}
