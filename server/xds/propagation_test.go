package xds

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// delays returns the number of observations of a stage, and their sum.
func delays(t *testing.T, r *prometheus.Registry, stage string) (count int, duration time.Duration) {
	for _, metricFamily := range gatherAll(t, r) {
		if metricFamily.GetName() != "xds_propagation_seconds" {
			continue
		}
		for _, m := range metricFamily.GetMetric() {
			if labelOf(m, "stage") == stage {
				count += int(m.GetHistogram().GetSampleCount())
				duration += time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
			}
		}
	}
	return count, duration
}

func gatherAll(t *testing.T, r *prometheus.Registry) []*dto.MetricFamily {
	families, err := r.Gather()
	require.NoError(t, err)
	return families
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// gaugeOf returns the value of a metric of lag for testType.
func gaugeOf(t *testing.T, r *prometheus.Registry, name string) float64 {
	for _, f := range gatherAll(t, r) {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && labelOf(m, "type_url") == testType {
				return m.GetGauge().GetValue()
			}
		}
	}
	require.Fail(t, "no metric", name)
	return 0
}

// change puts a change that was made that long ago.
func (f *fixture) change(t *testing.T, ago time.Duration, name, version string) {
	f.coll(testType).Apply(Commit{Put: []*Entry{padded(t, name, version, "")}, Since: time.Now().Add(-ago)})
}

func TestPropagation_MeasuredFromSourceToAck(t *testing.T) {
	for _, delta := range []bool{false, true} {
		registry := prometheus.NewRegistry()
		fixture := newFixture(t, Options{Registerer: registry})
		fixture.change(t, 9*time.Hour, "a", "1")
		fixture.coll(testType).MarkSynced()
		dial := fixture.sotw
		if delta {
			dial = fixture.delta
		}
		client := dial()
		client.Subscribe(testType, nil, "a@1")
		eventually(t, func() bool { return fixture.server.Clients()[0].Types[0].Synced })
		sent, _ := delays(t, registry, "sent")
		require.Zero(t, sent, "initial resources are no change")

		fixture.change(t, time.Hour, "a", "2")
		first := client.Expect(testType, "a@2")
		sent, duration := delays(t, registry, "sent")
		require.Equal(t, 1, sent)
		require.InDelta(t, time.Hour.Seconds(), duration.Seconds(), 60)
		acked, _ := delays(t, registry, "acknowledged")
		require.Zero(t, acked)
		require.InDelta(t, 1, gaugeOf(t, registry, "xds_unsynced_clients"), 0)
		require.Positive(t, gaugeOf(t, registry, "xds_oldest_unacknowledged_seconds"))

		// Changes while that is unanswered count from the first of them.
		fixture.change(t, 3*time.Hour, "a", "3")
		fixture.change(t, 2*time.Hour, "a", "4")
		client.Ack(first)
		second := client.Expect(testType, "a@4")
		acked, duration = delays(t, registry, "acknowledged")
		require.Equal(t, 1, acked)
		require.InDelta(t, time.Hour.Seconds(), duration.Seconds(), 60)
		sent, duration = delays(t, registry, "sent")
		require.Equal(t, 2, sent)
		require.InDelta(t, 4*time.Hour.Seconds(), duration.Seconds(), 60)
		client.Ack(second)
		eventually(t, func() bool { return fixture.server.Clients()[0].Types[0].Synced })
		acked, duration = delays(t, registry, "acknowledged")
		require.Equal(t, 2, acked)
		require.InDelta(t, 4*time.Hour.Seconds(), duration.Seconds(), 60)
		require.Zero(t, gaugeOf(t, registry, "xds_unsynced_clients"))
		require.Zero(t, gaugeOf(t, registry, "xds_oldest_unacknowledged_seconds"))
	}
}

func TestPropagation_IgnoresUnsubscribedChanges(t *testing.T) {
	registry := prometheus.NewRegistry()
	fixture := newFixture(t, Options{Registerer: registry})
	fixture.change(t, 9*time.Hour, "a", "1")
	fixture.coll(testType).MarkSynced()
	client := fixture.delta()
	client.Subscribe(testType, []string{"a"}, "a@1")
	fixture.change(t, 5*time.Hour, "b", "1")
	eventually(t, func() bool { return fixture.server.Clients()[0].Types[0].Synced })
	fixture.change(t, time.Hour, "a", "2")
	client.ExpectAck(testType, nil, "a@2")
	sent, sum := delays(t, registry, "sent")
	require.Equal(t, 1, sent)
	require.InDelta(t, time.Hour.Seconds(), sum.Seconds(), 60)
}
