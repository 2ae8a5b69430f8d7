package xds

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/recent"
)

// metrics are labelled by the type of the collection, never by strings of a client.
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

func newMetrics(registerer prometheus.Registerer, namespace string) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "xds", Name: name,
			Help: help,
		},
			[]string{"type_url"})
	}
	result := &metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "xds", Name: "streams", Help: "Open xDS streams, by protocol variant.",
		}, []string{"variant"}),
		requests:  counter("requests_total", "Discovery requests received, acknowledgements included."),
		nacks:     counter("nacks_total", "Responses that clients rejected."),
		responses: counter("responses_total", "Discovery responses sent."),
		resources: counter("resources_sent_total", "Resources and removals sent in responses."),
		bytes:     counter("response_bytes_total", "Encoded size of the responses sent."),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "xds", Name: "refusals_total",
			Help: "Streams refused, ended or throttled, by the limit or other reason.",
		}, []string{"reason"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "xds", Name: "propagation_seconds",
			Help: "Time from a change at its source until the response with it was sent (stage=sent) or acknowledged, for " +
				"clients that " +
				"already had the type.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"type_url", "stage"}),
	}
	result.streams.WithLabelValues("sotw")
	result.streams.WithLabelValues("delta")
	if registerer != nil {
		registerer.MustRegister(result.streams, result.requests, result.nacks, result.responses, result.resources,
			result.bytes, result.refusals, result.delay)
	}
	return result
}

func (m *metrics) stream(delta bool, n float64) { m.streams.WithLabelValues(variantName(delta)).Add(n) }

func variantName(delta bool) string {
	if delta {
		return "delta"
	}
	return "sotw"
}

// typeMetrics are the metrics of one type. A subscription has them at hand, so that counting needs no lookup.
type typeMetrics struct {
	requests, nacks, responses, resources, bytes prometheus.Counter
	toSent, toAcknowledged                       prometheus.Observer
}

func (m *metrics) forType(typeURL string) typeMetrics {
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

// changeTimes has the times of the oldest change that is due, that is being sent, and that is unacknowledged; zero if
// there is none.
type changeTimes struct{ due, sending, unacked time.Time }

// setGoal makes a state the goal. The first goal of a client counts as no change.
func (s *subscription) setGoal(goal *state) {
	// A state of no commit has no time of a change, unless it is empty.
	if s.goal != initialState && s.goal != goal && (s.goal.revision != 0 || s.goal.len == 0) {
		s.changeTimes.due = recent.Earlier(s.changeTimes.due, goal.times.After(s.goal.revision))
	}
	s.goal = goal
	if s.formerVersion != "" {
		s.resumeSotW()
	}
}

// begin notes that a response begins, which leads to the goal if entire.
func (c *changeTimes) begin(entire bool) {
	if entire {
		c.unacked = recent.Earlier(c.unacked, c.due)
		c.sending = c.due
		c.due = time.Time{}
	}
}

// sent notes that gRPC has taken all of a response.
func (m *typeMetrics) sent(n *changeTimes, now time.Time) {
	observe(m.toSent, n.sending, now)
	n.sending = time.Time{}
}

// acknowledged notes that a response was acknowledged.
func (m *typeMetrics) acknowledged(n *changeTimes, now time.Time) {
	observe(m.toAcknowledged, n.unacked, now)
	n.unacked = time.Time{}
}

func observe(o prometheus.Observer, start, now time.Time) {
	if !start.IsZero() {
		o.Observe(max(now.Sub(start), 0).Seconds())
	}
}

// lag measures, at each scrape, how far clients lag behind.
type lag struct {
	server                                 *Server
	oldest, unsynced, rejected, unenforced *prometheus.Desc
}

func newLag(server *Server, namespace string) *lag {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "xds", name), help, []string{"type_url"}, nil)
	}
	return &lag{
		server:   server,
		oldest:   desc("oldest_unacknowledged_seconds", "Age of the oldest unacknowledged response; 0 if none."),
		unsynced: desc("unsynced_clients", "Streams whose client has not acknowledged the newest version of the type."),
		rejected: desc("rejected_resources", "Resources that clients reject, counted once per stream."),
		unenforced: prometheus.NewDesc(prometheus.BuildFQName(namespace, "envoy", "unenforced_listeners"),
			"Listeners that clients reject with policies that are not in force at the client, counted once per stream.", nil,
			nil),
	}
}

// Describe implements prometheus.Collector.
func (l *lag) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.oldest
	ch <- l.unsynced
	ch <- l.rejected
	ch <- l.unenforced
}

// Collect implements prometheus.Collector.
func (l *lag) Collect(ch chan<- prometheus.Metric) {
	type behind struct {
		oldest             time.Time
		unsynced, rejected int
	}
	behindByType, now, unenforced := make(map[string]*behind), time.Now(), 0
	for _, stream := range l.server.streamList() {
		stream.mu.Lock()
		for _, subscription := range stream.subs {
			counts := behindByType[subscription.coll.typ.URL]
			if counts == nil {
				counts = &behind{}
				behindByType[subscription.coll.typ.URL] = counts
			}
			if !subscription.synced() {
				counts.unsynced++
			}
			for _, r := range subscription.rejections() {
				counts.rejected++
				if !r.UnenforcedSince.IsZero() {
					unenforced++
				}
			}
			if subscription.outstanding() && !subscription.coll.typ.NoAck {
				counts.oldest = recent.Earlier(counts.oldest, subscription.status.SentAt)
			}
		}
		stream.mu.Unlock()
	}
	ch <- prometheus.MustNewConstMetric(l.unenforced, prometheus.GaugeValue, float64(unenforced))
	for typeURL, counts := range behindByType {
		age := 0.0
		if !counts.oldest.IsZero() {
			age = now.Sub(counts.oldest).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(l.oldest, prometheus.GaugeValue, age, typeURL)
		ch <- prometheus.MustNewConstMetric(l.unsynced, prometheus.GaugeValue, float64(counts.unsynced), typeURL)
		ch <- prometheus.MustNewConstMetric(l.rejected, prometheus.GaugeValue, float64(counts.rejected), typeURL)
	}
}
