package sources

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/sources/guard"
)

// collector makes metrics of the status when Prometheus asks, so that the series of a source end with it.
type collector struct {
	supervisor *Supervisor
}

// descs has the result of each call of desc.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("tributary_"+name, help, append([]string{"source"}, labels...), nil)
	descs = append(descs, d)
	return d
}

var (
	upDesc     = desc("source_up", "Whether reads of the source succeed, at least in part.")
	syncedDesc = desc("source_synced", "Whether the source has been read as a whole once.")
	staleDesc  = desc("source_stale",
		"Whether served objects may be out of date: the source cannot be read, or not yet.")
	storedDesc      = desc("source_stored", "Whether the objects of the source can be written to the state directory.")
	objectsDesc     = desc("source_objects", "Resources of the source that are in force.", "kind")
	quarantinedDesc = desc("source_quarantined", "Invalid resources and documents of the source, which are not served.")
	conflictsDesc   = desc("source_conflicts",
		"Resources of the source that are not served, since another one has their key.")
	foreignDesc  = desc("source_foreign_objects", "Objects of other APIs than Istio's, which are ignored.")
	warningsDesc = desc("source_warnings", "Warnings about what the source read.")
	leftOutDesc  = desc("source_left_out", "Instances that are not served, since they are disabled or invalid.")
	ageDesc      = desc("source_age_seconds",
		"Seconds since the source last confirmed its content; 0 while reads succeed.")
	publishesDesc = desc("source_publishes_total", "Commits by the source.")
	publishedDesc = desc("source_last_publish_timestamp_seconds",
		"When the source last committed, in seconds since 1970.")
	restartsDesc = desc("source_restarts_total", "Restarts of the source after it failed.")

	heldObjectsDesc   = desc("guard_held_objects", "Objects that the source no longer has, and that are held in force.")
	heldEndpointsDesc = desc("guard_held_endpoints",
		"Endpoints that the source no longer has, and that are held in force.")
	holdsDesc = desc("guard_holds_total", "Losses of the source that were held.")
)

var (
	stateDesc = desc("source_state",
		"The state of the source: 1 for the current one, 0 for the others. A degraded source is "+
			"read in part, or keeps objects without confirmation.", "state")
	unconfirmedDesc = desc("source_unconfirmed",
		"Services, instances, keys or objects that the source's system no longer "+
			"lists, and that are served without confirmation.")
	untilDesc = desc("source_unconfirmed_until_timestamp_seconds",
		"When these stop being served, in seconds since 1970.")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, runner := range c.supervisor.list() {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{runner.name}, labels...)...)
		}
		count := func(d *prometheus.Desc, v int) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), runner.name)
		}
		status := runner.status(false)
		held := cmp.Or(status.Held, new(guard.Status))
		gauge(upDesc, truth(status.State == Healthy || status.State == Degraded))
		for state := Starting; state <= Degraded; state++ {
			gauge(stateDesc, truth(status.State == state), state.String())
		}
		gauge(unconfirmedDesc, float64(status.Unconfirmed))
		if status.UnconfirmedUntil != nil {
			gauge(untilDesc, float64(status.UnconfirmedUntil.Unix()))
		}
		gauge(syncedDesc, truth(status.Synced))
		gauge(staleDesc, truth(status.Stale))
		if status.Stored != nil {
			gauge(storedDesc, truth(status.Stored.Error == ""))
		}
		gauge(heldObjectsDesc, float64(held.Objects))
		gauge(heldEndpointsDesc, float64(held.Endpoints))
		count(holdsDesc, status.holds)
		for kind, n := range status.Objects {
			gauge(objectsDesc, float64(n), string(kind))
		}
		gauge(quarantinedDesc, float64(status.quarantined))
		gauge(conflictsDesc, float64(status.duplicates))
		gauge(foreignDesc, float64(status.Foreign))
		gauge(warningsDesc, float64(status.warnings))
		gauge(leftOutDesc, float64(status.LeftOutCount))
		gauge(ageDesc, status.age(time.Now()).Seconds())
		count(publishesDesc, status.Publishes)
		if status.LastPublish != nil {
			gauge(publishedDesc, float64(status.LastPublish.UnixMilli())/1000)
		}
		count(restartsDesc, status.Restarts)
	}
}

// age is the time since the source last confirmed its served objects. Before the first read it is the age of the
// restored objects.
func (st *Status) age(now time.Time) time.Duration {
	switch {
	case st.Synced && (st.State == Healthy || st.State == Degraded):
		return 0
	case !st.Synced && st.Restored != nil:
		return max(now.Sub(st.Restored.Stored), 0)
	}
	return max(now.Sub(st.Since), 0)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
