package admin

import (
	"cmp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// viewMetrics collects metrics of the view.
type viewMetrics struct{ view View }

var (
	viewSyncedDesc = prometheus.NewDesc("tributary_view_synced",
		"Whether every source that has to be has been read, or restored and then read, so that clients are answered.", nil,
		nil)
	viewObjectsDesc = prometheus.NewDesc("tributary_view_objects", "Objects that are served, of all sources.",
		[]string{"kind"}, nil)
	viewShadowedDesc = prometheus.NewDesc("tributary_view_shadowed_objects",
		"Objects that several sources have, and of which that of one is served.", nil, nil)
	viewCompetingDesc = prometheus.NewDesc("tributary_view_competing_hosts",
		"Hosts, and workloads of namespaces, claimed by several objects.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m viewMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{viewSyncedDesc, viewObjectsDesc, viewShadowedDesc, viewCompetingDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m viewMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	synced := 0
	if m.view.Synced() {
		synced = 1
	}
	gauge(viewSyncedDesc, synced)
	snapshot := m.view.Snapshot()
	for _, kind := range snapshot.Kinds() {
		gauge(viewObjectsDesc, snapshot.LenKind(kind), string(kind))
	}
	gauge(viewShadowedDesc, shadowed(m.view))
	gauge(viewCompetingDesc, competing(m.view))
}

// shadowed counts the objects that several sources have.
func shadowed(v View) (count int) {
	for range v.Shadows() {
		count++
	}
	return count
}

// competing counts the hosts and workloads on which there are conflicts, several on some.
func competing(v View) int {
	contested := make(map[string]bool)
	for _, c := range v.Conflicts() {
		contested[cmp.Or(c.Host, c.Subject)] = true
	}
	return len(contested)
}

// NewRegistry returns a registry with the metrics of the process, the Go runtime and the build.
func NewRegistry(version string) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tributary_build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}
