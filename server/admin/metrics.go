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
		"1 once every required source was read, or restored from disk, so that clients are answered. It stays 1.", nil, nil)
	viewObjectsDesc = prometheus.NewDesc("tributary_view_objects", "Served objects.",
		[]string{"kind"}, nil)
	viewShadowedDesc = prometheus.NewDesc("tributary_view_shadowed_objects",
		"Keys that several sources have; the object of one of them is served.", nil, nil)
	viewCompetingDesc = prometheus.NewDesc("tributary_view_competing_hosts",
		"Hosts, and workloads of namespaces, claimed by several objects.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m viewMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{viewSyncedDesc, viewObjectsDesc, viewShadowedDesc, viewCompetingDesc} {
		ch <- description
	}
}

// Collect implements prometheus.Collector.
func (m viewMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(description *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(value), labels...)
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
	gauge(viewShadowedDesc, countShadowed(m.view))
	gauge(viewCompetingDesc, countCompeting(m.view))
}

// countShadowed counts the keys that several sources have.
func countShadowed(view View) (count int) {
	for range view.Shadows() {
		count++
	}
	return count
}

// countCompeting counts the hosts and workloads that several objects claim. One of them may have several conflicts.
func countCompeting(view View) int {
	claimed := make(map[string]bool)
	for _, conflict := range view.Competing() {
		claimed[cmp.Or(conflict.Host, conflict.Subject)] = true
	}
	return len(claimed)
}

// NewRegistry returns a registry with the metrics of the process, the Go runtime and the build.
func NewRegistry(version string) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tributary_build_info", Help: "Always 1; the labels name the build.",
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
