package xds

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/recent"
)

// news follows what came about at the sources on its way to a client, by when that was: what it is to be sent, what is in the
// response that is being sent, and what it has yet to acknowledge. They are zero if there is nothing, or nobody knows.
type news struct{ due, going, told time.Time }

// head makes a state the goal. What a client is sent that begins is no news to it.
func (s *subscription) head(goal *state) {
	if s.goal != nothing && s.goal != goal {
		s.news.due = recent.Earlier(s.news.due, goal.times.After(s.goal.revision))
	}
	s.goal = goal
}

// tell notes that a response is begun after which the client is where s.has says.
func (n *news) tell(whole bool) {
	if whole {
		n.told, n.going, n.due = recent.Earlier(n.told, n.due), n.due, time.Time{}
	}
}

// sent counts a response of which the last was handed to gRPC.
func (m *typeMetrics) sent(n *news, now time.Time) {
	observe(m.toSent, n.going, now)
	n.going = time.Time{}
}

// acknowledged counts the answer to it.
func (m *typeMetrics) acknowledged(n *news, now time.Time) {
	observe(m.toAcknowledged, n.told, now)
	n.told = time.Time{}
}

func observe(o prometheus.Observer, since, now time.Time) {
	if !since.IsZero() {
		o.Observe(max(now.Sub(since), 0).Seconds())
	}
}

// lag makes metrics of how far behind clients are when it is asked.
type lag struct {
	server                     *Server
	oldest, unsynced, rejected *prometheus.Desc
}

func newLag(s *Server, namespace string) *lag {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "xds", name), help, []string{"type_url"}, nil)
	}
	return &lag{
		server: s,
		oldest: desc("oldest_unacknowledged_seconds", "For how long the response has gone unanswered that has done so for longest; 0 if "+
			"there is none."),
		unsynced: desc("unsynced_clients", "Streams whose client has not acknowledged the newest of the type."),
		rejected: desc("rejected_resources", "Resources that clients reject, each counted for each stream."),
	}
}

// Describe implements prometheus.Collector.
func (l *lag) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.oldest
	ch <- l.unsynced
	ch <- l.rejected
}

// Collect implements prometheus.Collector.
func (l *lag) Collect(ch chan<- prometheus.Metric) {
	type behind struct {
		oldest             time.Time
		unsynced, rejected int
	}
	all, now := make(map[string]*behind), time.Now()
	for _, st := range l.server.all() {
		st.mu.Lock()
		for _, sub := range st.subs {
			b := all[sub.coll.typ.URL]
			if b == nil {
				b = &behind{}
				all[sub.coll.typ.URL] = b
			}
			if !sub.synced() {
				b.unsynced++
			}
			b.rejected += len(sub.rejections())
			if sub.outstanding() && !sub.coll.typ.NoAck {
				b.oldest = recent.Earlier(b.oldest, sub.status.SentAt)
			}
		}
		st.mu.Unlock()
	}
	for typeURL, b := range all {
		age := 0.0
		if !b.oldest.IsZero() {
			age = now.Sub(b.oldest).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(l.oldest, prometheus.GaugeValue, age, typeURL)
		ch <- prometheus.MustNewConstMetric(l.unsynced, prometheus.GaugeValue, float64(b.unsynced), typeURL)
		ch <- prometheus.MustNewConstMetric(l.rejected, prometheus.GaugeValue, float64(b.rejected), typeURL)
	}
}
