package dial

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Vitals are metrics of what the servers of the parts of a Consul said of themselves when they were last asked; of several parts that
// which is worst. There are none before the first was asked. They are safe for concurrent use.
type Vitals struct {
	mu   sync.Mutex
	last map[string]Pulse // by part
}

var (
	leaderDesc = prometheus.NewDesc("tributary_consul_known_leader",
		"Whether the server that answers knows a leader (1), as last asked.", nil, nil)
	contactDesc = prometheus.NewDesc("tributary_consul_last_contact_seconds",
		"How long ago the server that answers heard of its leader, as last asked.", nil, nil)
)

// Take takes up what was answered about a part.
func (v *Vitals) Take(part string, p Pulse) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil {
		v.last = make(map[string]Pulse)
	}
	v.last[part] = p
}

// Worst is no leader if there is a part without one, and the longest time without contact; ok is false if no part was asked yet.
func (v *Vitals) Worst() (worst Pulse, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	worst.KnownLeader = true
	for _, p := range v.last {
		worst.KnownLeader = worst.KnownLeader && p.KnownLeader
		worst.LastContact = max(worst.LastContact, p.LastContact)
	}
	return worst, len(v.last) > 0
}

// Describe implements prometheus.Collector.
func (v *Vitals) Describe(ch chan<- *prometheus.Desc) {
	ch <- leaderDesc
	ch <- contactDesc
}

// Collect implements prometheus.Collector.
func (v *Vitals) Collect(ch chan<- prometheus.Metric) {
	worst, ok := v.Worst()
	if !ok {
		return
	}
	leader := 0.0
	if worst.KnownLeader {
		leader = 1
	}
	ch <- prometheus.MustNewConstMetric(leaderDesc, prometheus.GaugeValue, leader)
	ch <- prometheus.MustNewConstMetric(contactDesc, prometheus.GaugeValue, worst.LastContact.Seconds())
}
