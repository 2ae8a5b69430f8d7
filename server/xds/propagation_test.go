package xds

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// delays returns the number of observations of a stage, and their sum.
func delays(t *testing.T, r *prometheus.Registry, stage string) (count int, sum time.Duration) {
	for _, f := range gatherAll(t, r) {
		if f.GetName() != "xds_propagation_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if labelOf(m, "stage") == stage {
				count += int(m.GetHistogram().GetSampleCount())
				sum += time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
			}
		}
	}
	return count, sum
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
func (w *fixture) change(t *testing.T, ago time.Duration, name, version string) {
	w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, name, version, "")}, Since: time.Now().Add(-ago)})
}

func TestPropagation_MeasuredFromSourceToAck(t *testing.T) {
	for _, delta := range []bool{false, true} {
		r := prometheus.NewRegistry()
		w := newFixture(t, Options{Registerer: r})
		w.change(t, 9*time.Hour, "a", "1")
		w.coll(testType).MarkSynced()
		dial := w.sotw
		if delta {
			dial = w.delta
		}
		c := dial(testType)
		c.ask(testType)
		c.expectAck(testType, nil, "a@1")
		eventually(t, func() bool { return w.server.Clients()[0].Types[0].Synced })
		sent, _ := delays(t, r, "sent")
		require.Zero(t, sent, "initial resources are no change")

		w.change(t, time.Hour, "a", "2")
		first := c.expect(testType, "a@2")
		sent, sum := delays(t, r, "sent")
		require.Equal(t, 1, sent)
		require.InDelta(t, time.Hour.Seconds(), sum.Seconds(), 60)
		acked, _ := delays(t, r, "acknowledged")
		require.Zero(t, acked)
		require.InDelta(t, 1, gaugeOf(t, r, "xds_unsynced_clients"), 0)
		require.Positive(t, gaugeOf(t, r, "xds_oldest_unacknowledged_seconds"))

		// Changes while that is unanswered count from the first of them.
		w.change(t, 3*time.Hour, "a", "3")
		w.change(t, 2*time.Hour, "a", "4")
		c.ack(first)
		second := c.expect(testType, "a@4")
		acked, sum = delays(t, r, "acknowledged")
		require.Equal(t, 1, acked)
		require.InDelta(t, time.Hour.Seconds(), sum.Seconds(), 60)
		sent, sum = delays(t, r, "sent")
		require.Equal(t, 2, sent)
		require.InDelta(t, 4*time.Hour.Seconds(), sum.Seconds(), 60)
		c.ack(second)
		eventually(t, func() bool { return w.server.Clients()[0].Types[0].Synced })
		acked, sum = delays(t, r, "acknowledged")
		require.Equal(t, 2, acked)
		require.InDelta(t, 4*time.Hour.Seconds(), sum.Seconds(), 60)
		require.Zero(t, gaugeOf(t, r, "xds_unsynced_clients"))
		require.Zero(t, gaugeOf(t, r, "xds_oldest_unacknowledged_seconds"))
	}
}

func TestPropagation_IgnoresUnsubscribedChanges(t *testing.T) {
	r := prometheus.NewRegistry()
	w := newFixture(t, Options{Registerer: r})
	w.change(t, 9*time.Hour, "a", "1")
	w.coll(testType).MarkSynced()
	c := w.delta(testType)
	c.ask(testType, "a")
	c.expectAck(testType, nil, "a@1")
	w.change(t, 5*time.Hour, "b", "1")
	eventually(t, func() bool { return w.server.Clients()[0].Types[0].Synced })
	w.change(t, time.Hour, "a", "2")
	c.expectAck(testType, nil, "a@2")
	sent, sum := delays(t, r, "sent")
	require.Equal(t, 1, sent)
	require.InDelta(t, time.Hour.Seconds(), sum.Seconds(), 60)
}
